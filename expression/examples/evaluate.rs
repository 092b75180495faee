//! Compiles and evaluates a CEL expression: `cargo run -p expression --example evaluate`.

use expression::Program;
use serde_json::json;

fn main() -> Result<(), expression::ExpressionError> {
    let selector =
        Program::compile("cluster.status.nodes.ready > 3 && cluster.labels.region == 'eu'", &["cluster"])?;
    let east = json!({ "labels": { "region": "eu" }, "status": { "nodes": { "ready": 5 } } });
    println!("east is selected: {}", selector.evaluate_bool(&[("cluster", &east)])?);

    let error =
        Program::compile("cluster.status.nodes.ready >", &["cluster"]).expect_err("not an expression");
    println!("an error has a line and a column: {error}");
    Ok(())
}
