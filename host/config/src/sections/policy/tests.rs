use crate::fixtures::{CATALOG, SMALLEST};
use crate::{parse, plan};

fn with(grants: &str) -> String {
    format!("{SMALLEST}\n[policies.vault]\ncomponent = \"vault.wasm\"\n{grants}")
}

fn read(grants: &str) -> super::Policy {
    let config = parse("/etc/tidegate/tidegate.toml", &with(grants), &CATALOG)
        .unwrap_or_else(|errors| panic!("{errors}"));
    config.policies["vault"].clone()
}

fn errors(grants: &str) -> String {
    parse("/etc/tidegate/tidegate.toml", &with(grants), &CATALOG).unwrap_err().to_string()
}

#[test]
fn grants_are_lists_and_a_table() {
    let text = "grants.env = [\"A\", \"B\"]\ngrants.http = [\"https://Vault.example:8200\", \"http://127.0.0.1:9000\"]\n\
                grants.directories = { keys = \"/run/keys\", other = \"below\" }\ngrants.http-ca-file = \"ca.pem\"";
    let grants = read(text).grants;
    assert_eq!(grants.env.iter().collect::<Vec<_>>(), ["A", "B"]);
    let origins: Vec<_> = grants.http.iter().map(ToString::to_string).collect();
    assert_eq!(origins, ["http://127.0.0.1:9000", "https://vault.example:8200"]);
    assert!(grants.directories["keys"].ends_with("run/keys") && grants.directories["keys"].has_root());
    assert!(
        grants.directories["other"].ends_with("below")
            && grants.directories["other"].starts_with("/etc/tidegate")
    );
    assert!(grants.http_ca_file.unwrap().ends_with("ca.pem"));
    // As a section of its own.
    let table = read(
        "[policies.vault.grants]\nenv = [\"A\"]\n[policies.vault.grants.directories]\nkeys = \"/run/keys\"",
    );
    assert_eq!((table.grants.env.len(), table.grants.directories.len()), (1, 1));
    assert_eq!(read("").grants, super::Grants::default());
}

#[test]
fn what_is_no_grant_is_told_at_its_place() {
    for (text, key, part) in [
        ("grants.env = \"A\"", "policies.vault.grants.env", "an array of texts"),
        ("grants.env = [1]", "policies.vault.grants.env", "other things than texts"),
        ("grants.env = [\"A*\"]", "policies.vault.grants.env", "written out"),
        ("grants.http = [\"vault.example\"]", "policies.vault.grants.http", "no scheme"),
        ("grants.http = [\"https://*.example\"]", "policies.vault.grants.http", "wildcard"),
        ("grants.directories = [\"/run\"]", "policies.vault.grants.directories", "a table of texts"),
        ("grants.directories = { \"a/b\" = \"/run\" }", "policies.vault.grants.directories", "unlike `a/b`"),
        ("grants.directories = { a = 1 }", "policies.vault.grants.directories", "table of texts"),
        ("grants.envs = [\"A\"]", "policies.vault.grants.envs", "did you mean `grants.env`"),
    ] {
        let errors = errors(text);
        assert!(errors.contains(key) && errors.contains(part), "{text}: {errors}");
    }
}

#[test]
fn other_grants_are_applied_at_once() {
    let config = |grants| parse("/etc/tidegate/tidegate.toml", &with(grants), &CATALOG).unwrap();
    let plan = plan(
        &config("grants.env = [\"A\"]"),
        &config("grants.env = [\"B\"]\ngrants.directories = { a = \"/b\" }"),
    );
    let keys: Vec<_> = plan.live.iter().map(|change| change.key.as_str()).collect();
    assert_eq!(keys, ["policies.vault.grants.directories", "policies.vault.grants.env"]);
    assert!(plan.restart.is_empty());
}
