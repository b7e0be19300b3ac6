mod support;
use support::*;
#[test]
fn probe() {
    let w = Workplace::new(&["digits"], &["candle", "null"], &[1]);
    let t = std::time::Instant::now();
    println!("{}", w.bench(&["--list"]).finish().with_code(0).stdout);
    println!("{:?}", t.elapsed());
    let out = w.bench(&["--noplot"]).finish();
    println!("{:?} {} {}\n{:?}", out.code, out.stdout, out.stderr, w.measured());
    println!("{:?}", t.elapsed());
}
