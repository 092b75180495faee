//! Compares the published documents and tables with those of a real kube-apiserver.
//!
//! Every comparison returns the differences beyond those that it lists and explains, so one run shows all of them.

mod discovery;
mod documents;
mod server;
mod tables;
mod updates;

use server::Server;

type Compare = fn(&Server) -> Vec<String>;

#[test]
#[ignore = "needs a real Kubernetes cluster"]
fn responses_equal_those_of_a_kube_apiserver() {
    let server = Server::start();
    let comparisons: [(&str, Compare); 8] = [
        ("discovery", discovery::differences),
        ("OpenAPI v3 types", documents::types_differ),
        ("OpenAPI v3 paths", documents::paths_differ),
        ("OpenAPI v2 types", documents::v2_differs),
        ("field selectors", discovery::selectors_differ),
        ("table cells", tables::cells_differ),
        ("generations", tables::generations_differ),
        ("updates and deletions", updates::differences),
    ];
    let mut report = String::new();
    for (subject, compare) in comparisons {
        let differences = compare(&server);
        if !differences.is_empty() {
            report += &format!("{subject}: {} differences\n", differences.len());
            for difference in differences.iter().take(40) {
                report += &format!("  {difference}\n");
            }
        }
    }
    assert!(report.is_empty(), "{report}");
}
