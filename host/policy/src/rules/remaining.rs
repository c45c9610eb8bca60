//! What is left of rules once everything that was complained about is taken out, so that a policy, which names one
//! mistake at a time, can be asked for the next.

use serde_json::Value;

use super::key_and_items;

/// Mistakes of one rules file that are looked for. A file with more of them is some other file.
const COMPLAINTS_MAX: usize = 20;

/// One complaint of a policy: the key and what is wrong with it.
pub(crate) type Complaint = (String, String);

/// Every complaint that `configure` has about `rules`, given the first one. It is asked again with what it complained
/// about left out, until it is content. What it then misses is no complaint about the file.
pub(crate) fn every_complaint(
    rules: Value,
    first: Option<Complaint>,
    mut configure: impl FnMut(&str) -> Option<Complaint>,
) -> Vec<Complaint> {
    let mut remaining = Remaining { root: rules, gone: Vec::new() };
    let mut complaints: Vec<Complaint> = Vec::new();
    let mut next = first.or_else(|| configure(&remaining.root.to_string()));
    while let Some((key, message)) = next.take() {
        let Some(path) = Path::parse(&key) else {
            complaints.push((key, message));
            break;
        };
        let table = remaining.original(&path.table());
        let is_there = remaining.has(&path);
        // Something is missing where something was taken out: that is not the file's fault.
        let follows = !is_there && complaints.iter().any(|(known, _)| is_below(known, &table));
        if !follows {
            complaints.push((remaining.original(&path), message));
        }
        let removed = remaining.remove(&path) || remaining.remove(&path.table());
        if !removed || complaints.len() >= COMPLAINTS_MAX {
            break;
        }
        next = configure(&remaining.root.to_string());
    }
    complaints
}

/// The rules that are left.
struct Remaining {
    root: Value,
    /// Items of arrays that are gone: the array's path in the file's numbers, and the item's number in the file.
    gone: Vec<(String, usize)>,
}

/// A key such as `rule[2].match.tag`, step by step.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Path(Vec<Step>);

#[derive(Clone, Debug, Eq, PartialEq)]
enum Step {
    Key(String),
    Item(usize),
}

impl Remaining {
    fn has(&self, path: &Path) -> bool {
        find(&self.root, &path.0).is_some()
    }

    /// Takes out what stands there; false when there is nothing.
    fn remove(&mut self, path: &Path) -> bool {
        let Some((last, above)) = path.0.split_last() else { return false };
        let original = self.original(path);
        let Some(parent) = find_mut(&mut self.root, above) else { return false };
        match (last, parent) {
            (Step::Key(key), Value::Object(table)) => table.remove(key).is_some(),
            (Step::Item(at), Value::Array(items)) if *at < items.len() => {
                items.remove(*at);
                let (array, number) = original.rsplit_once('[').unwrap_or_default();
                let number = number.trim_end_matches(']').parse().unwrap_or_default();
                self.gone.push((array.to_owned(), number));
                true
            }
            _ => false,
        }
    }

    /// The path as it is in the file, where no item is gone.
    fn original(&self, path: &Path) -> String {
        let mut text = String::new();
        for step in &path.0 {
            match step {
                Step::Key(key) if text.is_empty() => text.push_str(key),
                Step::Key(key) => {
                    text.push('.');
                    text.push_str(key);
                }
                Step::Item(at) => {
                    let number = self.number(&text, *at);
                    text.push_str(&format!("[{number}]"));
                }
            }
        }
        text
    }

    /// The number in the file of an array's item that is now the one at `at`.
    fn number(&self, array: &str, at: usize) -> usize {
        let mut gone: Vec<_> =
            self.gone.iter().filter(|(path, _)| path == array).map(|(_, number)| *number).collect();
        gone.sort_unstable();
        // The policy may have named any number, up to which nobody wants to count.
        gone.into_iter()
            .fold(at, |number, gone| if gone <= number { number.saturating_add(1) } else { number })
    }
}

impl Path {
    fn parse(text: &str) -> Option<Self> {
        let mut steps = Vec::new();
        for segment in text.split('.').filter(|segment| !segment.is_empty()) {
            let (key, items) = key_and_items(segment);
            steps.push(Step::Key(key.to_owned()));
            for item in items {
                steps.push(Step::Item(item.parse().ok()?));
            }
        }
        (!steps.is_empty()).then_some(Self(steps))
    }

    /// What it stands in.
    fn table(&self) -> Self {
        Self(self.0.split_last().map(|(_, above)| above.to_vec()).unwrap_or_default())
    }
}

/// Whether `key` stands in `table`; everything stands in the whole, whose path is empty.
fn is_below(key: &str, table: &str) -> bool {
    table.is_empty() || key.strip_prefix(table).is_some_and(|rest| rest.starts_with(['.', '[']))
}

fn find<'v>(root: &'v Value, steps: &[Step]) -> Option<&'v Value> {
    steps.iter().try_fold(root, |value, step| match step {
        Step::Key(key) => value.get(key),
        Step::Item(at) => value.get(at),
    })
}

fn find_mut<'v>(root: &'v mut Value, steps: &[Step]) -> Option<&'v mut Value> {
    steps.iter().try_fold(root, |value, step| match step {
        Step::Key(key) => value.get_mut(key),
        Step::Item(at) => value.get_mut(at),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A policy whose rules need a `rate` below 10 and know nothing else.
    fn configure(text: &str) -> Option<Complaint> {
        let rules: Value = serde_json::from_str(text).unwrap();
        for (n, rule) in rules["rule"].as_array().unwrap().iter().enumerate() {
            let rule = rule.as_object().unwrap();
            if let Some(key) = rule.keys().find(|key| *key != "rate") {
                return Some((format!("rule[{n}].{key}"), "unknown".to_owned()));
            }
            match rule.get("rate").and_then(Value::as_u64) {
                None => return Some((format!("rule[{n}].rate"), "is missing".to_owned())),
                Some(rate) if rate > 9 => return Some((format!("rule[{n}].rate"), "too high".to_owned())),
                Some(_) => {}
            }
        }
        None
    }

    fn complaints(rules: Value) -> Vec<String> {
        let told = every_complaint(rules, None, configure);
        told.into_iter().map(|(key, message)| format!("{key} {message}")).collect()
    }

    #[test]
    fn every_mistake_is_told_with_its_place_in_the_file() {
        let rules = json!({ "rule": [
            { "rate": 10 },
            { "rate": 1 },
            { "rat": 1, "ate": 2 },
            { "rate": 10, "x": 1 },
            {},
            { "rate": 20 },
        ] });
        assert_eq!(
            complaints(rules),
            [
                "rule[0].rate too high",
                "rule[2].ate unknown",
                "rule[2].rat unknown",
                "rule[3].x unknown",
                "rule[3].rate too high",
                "rule[4].rate is missing",
                "rule[5].rate too high",
            ]
        );
    }

    #[test]
    fn good_rules_have_none() {
        assert_eq!(complaints(json!({ "rule": [{ "rate": 1 }] })), [""; 0]);
    }

    #[test]
    fn a_complaint_about_the_whole_is_the_last() {
        let mut asked = 0;
        let told = every_complaint(json!({}), None, |_| {
            asked += 1;
            Some((String::new(), "no".to_owned()))
        });
        assert_eq!((told, asked), (vec![(String::new(), "no".to_owned())], 1));
    }

    #[test]
    fn a_policy_that_is_never_content_is_not_asked_for_ever() {
        let mut asked = 0;
        let rules: Value = (0..100).map(|n| (format!("key-{n}"), json!(n))).collect();
        every_complaint(rules, None, |text| {
            asked += 1;
            let rules: serde_json::Map<String, Value> = serde_json::from_str(text).unwrap();
            rules.keys().next().map(|key| (key.clone(), "no".to_owned()))
        });
        assert_eq!(asked, COMPLAINTS_MAX);
        every_complaint(json!({ "a": 1 }), None, |_| Some(("other".to_owned(), "no".to_owned())));
    }
}
