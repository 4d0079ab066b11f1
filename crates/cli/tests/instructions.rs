//! What a request costs the scheduler, in instructions: the one number that a shared machine does
//! not change. A change that makes it dearer fails here, and either is mended or raises the limit
//! and says why.

use std::process::Command;

/// Instructions of the development profile, which checks overflows, with a tenth of room for other
/// compilers.
const LIMITS: [(&str, f64); 3] =
    [("deferred", 820.0), ("fermata", 900.0), ("fermata:release", 900.0)];

#[test]
fn a_request_costs_no_more_instructions_than_it_did() {
    for (policy, limit) in LIMITS {
        let program = env!("CARGO_BIN_EXE_fermata");
        let options = ["--rate", "12e6", "--seconds", "0.01", "--json", "--policy", policy];
        let run = Command::new(program).args(["bench", "scheduler"]).args(options).output();
        let output = run.expect("it was built");
        let found: serde_json::Value =
            serde_json::from_slice(&output.stdout).expect("it prints JSON");
        match found["instructions_per_request"].as_f64() {
            Some(counted) => {
                println!("{policy}: {counted:.0} instructions a request");
                assert!(counted <= limit, "{policy}: {counted:.0}, at most {limit}");
            }
            // Where a process may not trace its own child there is nothing to count with.
            None => println!("{}", String::from_utf8_lossy(&output.stderr)),
        }
    }
}
