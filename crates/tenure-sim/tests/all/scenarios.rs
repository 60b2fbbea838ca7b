//! Replays `scenarios/*.txt`. With `TENURE_BLESS=1` in the environment the outcomes are written
//! anew; read the difference before you believe it.

use std::path::Path;

use tenure_sim::scenario::play;

#[test]
fn every_scenario_goes_as_it_is_told() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut paths: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 5);
    for path in paths {
        let told = std::fs::read_to_string(&path).unwrap();
        let played = play(&told).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        if std::env::var_os("TENURE_BLESS").is_some() {
            std::fs::write(&path, &played).unwrap();
        } else {
            assert_eq!(told, played, "{}", path.display());
        }
    }
}
