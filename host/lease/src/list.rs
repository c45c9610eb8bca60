//! Doubly linked lists through the slots of a table: constant-time removal from the middle, no allocation.
//!
//! One slot may be in several lists at once, one per kind of link; the kind is a type, so that a list cannot be walked
//! by another's links.

use std::marker::PhantomData;

/// No slot.
pub(crate) const NIL: u32 = u32::MAX;

/// A slot's neighbours in one kind of list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    prev: u32,
    next: u32,
}

impl Link {
    pub(crate) const UNLINKED: Self = Self { prev: NIL, next: NIL };
}

/// A table whose slots have a link of the given kind.
pub(crate) trait Linked<Kind> {
    fn link(&self, at: u32) -> Link;
    fn link_mut(&mut self, at: u32) -> &mut Link;
}

/// One list of the given kind. The slots live elsewhere; a slot must be in at most one list of a kind.
#[derive(Debug)]
pub(crate) struct List<Kind> {
    head: u32,
    tail: u32,
    len: u32,
    kind: PhantomData<fn() -> Kind>,
}

impl<Kind> Default for List<Kind> {
    fn default() -> Self {
        Self { head: NIL, tail: NIL, len: 0, kind: PhantomData }
    }
}

impl<Kind> List<Kind> {
    pub(crate) const fn len(&self) -> usize {
        self.len as usize
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) const fn front(&self) -> Option<u32> {
        slot(self.head)
    }

    pub(crate) const fn back(&self) -> Option<u32> {
        slot(self.tail)
    }

    pub(crate) fn next(table: &impl Linked<Kind>, at: u32) -> Option<u32> {
        slot(table.link(at).next)
    }

    pub(crate) fn push_back(&mut self, table: &mut impl Linked<Kind>, at: u32) {
        *table.link_mut(at) = Link { prev: self.tail, next: NIL };
        match self.tail {
            NIL => self.head = at,
            tail => table.link_mut(tail).next = at,
        }
        self.tail = at;
        self.len += 1;
    }

    pub(crate) fn push_front(&mut self, table: &mut impl Linked<Kind>, at: u32) {
        *table.link_mut(at) = Link { prev: NIL, next: self.head };
        match self.head {
            NIL => self.tail = at,
            head => table.link_mut(head).prev = at,
        }
        self.head = at;
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, table: &mut impl Linked<Kind>, at: u32) {
        let Link { prev, next } = std::mem::replace(table.link_mut(at), Link::UNLINKED);
        match prev {
            NIL => self.head = next,
            prev => table.link_mut(prev).next = next,
        }
        match next {
            NIL => self.tail = prev,
            next => table.link_mut(next).prev = prev,
        }
        self.len -= 1;
    }

    pub(crate) fn pop_front(&mut self, table: &mut impl Linked<Kind>) -> Option<u32> {
        let at = self.front()?;
        self.remove(table, at);
        Some(at)
    }
}

const fn slot(at: u32) -> Option<u32> {
    if at == NIL { None } else { Some(at) }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Table(Vec<Link>);

    impl Linked<()> for Table {
        fn link(&self, at: u32) -> Link {
            self.0[at as usize]
        }
        fn link_mut(&mut self, at: u32) -> &mut Link {
            &mut self.0[at as usize]
        }
    }

    fn contents(list: &List<()>, table: &Table) -> Vec<u32> {
        let forward: Vec<u32> = std::iter::successors(list.front(), |at| List::next(table, *at)).collect();
        let mut backward: Vec<u32> =
            std::iter::successors(list.back(), |at| slot(table.link(*at).prev)).collect();
        backward.reverse();
        assert_eq!(forward, backward);
        assert_eq!(forward.len(), list.len());
        forward
    }

    #[test]
    fn removal_works_at_both_ends_and_in_the_middle() {
        let mut table = Table(vec![Link::UNLINKED; 5]);
        let mut list = List::default();
        for at in 0..5 {
            list.push_back(&mut table, at);
        }
        list.remove(&mut table, 2);
        assert_eq!(contents(&list, &table), [0, 1, 3, 4]);
        list.remove(&mut table, 0);
        list.remove(&mut table, 4);
        assert_eq!(contents(&list, &table), [1, 3]);
        assert_eq!(list.pop_front(&mut table), Some(1));
        assert_eq!(list.pop_front(&mut table), Some(3));
        assert_eq!(list.pop_front(&mut table), None);
        list.push_front(&mut table, 2);
        assert_eq!(contents(&list, &table), [2]);
        list.push_front(&mut table, 0);
        list.push_back(&mut table, 4);
        assert_eq!(contents(&list, &table), [0, 2, 4]);
    }
}
