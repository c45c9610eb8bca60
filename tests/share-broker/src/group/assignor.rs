//! Who gets which partitions of a topic: the sizes of Kafka's "simple" assignor, without its stickiness.

/// Pairs of member and partition. With members to spare, every partition goes to several, equally many for each.
pub(crate) fn assign<'a>(members: &[&'a str], partitions: i32) -> Vec<(&'a str, i32)> {
    let places = usize::try_from(partitions).unwrap_or(0);
    if members.is_empty() || places == 0 {
        return Vec::new();
    }
    if members.len() >= places {
        let slots = places * members.len().div_ceil(places);
        return (0..slots)
            .zip(members.iter().cycle())
            .zip((0..partitions).cycle())
            .map(|((_, member), partition)| (*member, partition))
            .collect();
    }
    let (each, more) = (places / members.len(), places % members.len());
    let sizes = (0..members.len()).map(|at| each + usize::from(at < more));
    let owners = members.iter().zip(sizes).flat_map(|(member, size)| std::iter::repeat_n(*member, size));
    owners.zip(0..partitions).collect()
}

#[cfg(test)]
mod tests {
    use super::assign;

    fn sizes(members: usize, partitions: i32) -> Vec<usize> {
        let names: Vec<String> = (0..members).map(|number| format!("m{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let assigned = assign(&names, partitions);
        let size = |name: &&str| assigned.iter().filter(|(member, _)| member == name).count();
        names.iter().map(size).collect()
    }

    /// As measured, up to the order of members.
    #[test]
    fn partitions_are_split_or_shared() {
        assert_eq!(sizes(1, 4), [4]);
        assert_eq!(sizes(2, 4), [2, 2]);
        assert_eq!(sizes(3, 4), [2, 1, 1]);
        assert_eq!(sizes(4, 4), [1, 1, 1, 1]);
        assert_eq!(sizes(5, 4), [2, 2, 2, 1, 1]);
        assert_eq!(sizes(6, 4), [2, 2, 1, 1, 1, 1]);
        assert_eq!(sizes(6, 3), [1; 6]);
        assert_eq!(assign(&["a", "b"], 4), [("a", 0), ("a", 1), ("b", 2), ("b", 3)]);
        let shared = assign(&["a", "b", "c", "d", "e"], 4);
        for partition in 0..4 {
            let owners: Vec<_> =
                shared.iter().filter(|(_, of)| *of == partition).map(|(who, _)| who).collect();
            assert_eq!(owners.len(), 2);
            assert_ne!(owners[0], owners[1]);
        }
    }
}
