//! Rows whose columns stand below each other.

/// The lines of a table. Its last column is as wide as it wants to be.
pub(in crate::commands) fn lines(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["NAME", "STATE", "WHAT"], ["é", "outdated", ""], ["longer", "ok", "a sentence"]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(
            lines(&rows),
            ["NAME    STATE     WHAT", "é       outdated", "longer  ok        a sentence"]
        );
    }
}
