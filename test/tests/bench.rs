//! The benchmark of the API runs every workload, here with sizes too small for meaningful figures.

use std::process::Command;

use serde_json::Value;

#[test]
fn every_workload_gives_figures() {
    let dir = tempfile::tempdir().unwrap();
    let figures = dir.path().join("api.jsonl");
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args([
            "api",
            "--alone",
            "--rounds=1",
            "--seconds=0.2",
            "--objects=20",
            "--watchers=5",
            "--clusters=5",
        ])
        .arg("--holon")
        .arg(scenarios::holon::program().unwrap())
        .arg("--json")
        .arg(&figures)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(&figures).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for id in
        ["START", "RSS", "C1", "C64", "D", "U64", "A0", "A1", "W", "G256", "L500", "LFULL", "LSEL", "LC"]
    {
        let row = rows.iter().find(|row| row["id"] == id).unwrap_or_else(|| panic!("no {id} in {text}"));
        assert!(row["ours"].as_f64().is_some_and(|figure| figure >= 0.0), "{row}");
    }
}
