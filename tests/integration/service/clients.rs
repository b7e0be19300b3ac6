//! Clients as people use them: a browser, curl with jq, Python, and systemd.

use super::*;
use crate::support::left_out;

#[test]
fn a_browser_starts_follows_reloads_compares_and_cancels_runs() {
    let Some(mut browser) = Browser::start() else { return };
    let workplace = workplace();
    let server = Server::start(&workplace, &[]);
    let home = format!("http://{}/", server.address);
    browser.open(&home);
    let ready =
        "document.documentElement?.dataset.ready === 'yes' && document.querySelector('#models option') !== null";
    let wait = |browser: &mut Browser, expression: &str| {
        wait_for(expression, || (browser.value(expression) == true).then_some(()));
    };
    wait(&mut browser, ready);
    let choose = |model: &str, batches: &str, iterations: usize| {
        format!(
            "for (const option of document.querySelectorAll('#models option')) option.selected = option.value === '{model}';
            for (const box of document.querySelectorAll('#backends input')) box.checked = box.value === 'candle';
            document.querySelector('#batches').value = '{batches}';
            document.querySelector('#iterations').value = '{iterations}';
            document.querySelector('#threads').value = '1';
            document.querySelector('#batches').focus();"
        )
    };
    let row = "document.querySelector('#cases tbody tr')?.textContent ?? ''";
    let id =
        |browser: &mut Browser| browser.value("location.hash").as_str().unwrap().trim_start_matches("#run=").to_owned();
    let has_result = format!(
        "({row}).startsWith('digits/candle-cpu-f32/1ok') && /[nµm]s/.test({row}) && document.querySelector('iframe')?.dataset.loaded === 'yes' \
         && document.querySelector('iframe').contentDocument.querySelectorAll('svg').length > 0"
    );
    let mut runs = Vec::new();
    for _ in 0..2 {
        // Without a mouse: Enter in a field starts.
        browser.value(&choose("digits", "1", 20));
        let before = browser.value("location.hash");
        browser.press("Enter", 13, "\r");
        wait(
            &mut browser,
            &format!("location.hash.startsWith('#run=') && location.hash !== '{}'", before.as_str().unwrap()),
        );
        wait(&mut browser, "document.querySelector('#state').textContent.startsWith('done')");
        wait(&mut browser, &has_result);
        runs.push(id(&mut browser));
    }
    browser.call("Page.reload", json!({}));
    wait(&mut browser, &format!("{ready} && {has_result}"));
    // A link that somebody else opens.
    browser.open("about:blank");
    browser.open(&format!("{home}#run={}", runs[0]));
    wait(
        &mut browser,
        &format!("{ready} && document.querySelector('#run-title').textContent === 'Run {}' && {has_result}", runs[0]),
    );
    let narrow = json!({ "width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": false });
    browser.call("Emulation.setDeviceMetricsOverride", narrow);
    let beyond = browser.value("document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth");
    assert_eq!(beyond, 0);

    browser.value(&format!(
        "document.querySelector('input[name=base][value=\"{}\"]').click(); document.querySelector('input[name=candidate][value=\"{}\"]').click(); \
         document.querySelector('#compare').click()",
        runs[0], runs[1]
    ));
    wait(&mut browser, "document.querySelectorAll('#compared tr').length === 1");
    let verdict = browser.value("document.querySelector('#compared tr td:nth-child(5)').textContent");
    assert!(["same", "faster", "slower", "cannot-say"].contains(&verdict.as_str().unwrap()), "{verdict}");

    // A late answer does not replace a newer one.
    let is_late = browser.value(
        "(async () => {
            const [plain, sleep] = [ask, (ms) => new Promise((wake) => setTimeout(wake, ms))];
            ask = async (path) => {
                await sleep(path.includes('late') ? 200 : 0);
                return { cases: [{ id: path, changes: [] }], refused: [], items: [], job: { state: 'failed', message: path } };
            };
            showComparison('late', 'x');
            showComparison('soon', 'x');
            follow('late');
            follow('soon');
            await sleep(400);
            ask = plain;
            return ['#compared', '#state'].map((place) => /late/.test(document.querySelector(place).textContent));
        })()",
    );
    assert_eq!(is_late, json!([false, false]));
    // The page shows all changes and the cases that are not compared, and asks only for backends that are ticked.
    let shown = browser.value(
        "(async () => {
            const plain = ask;
            const changes = [{ quantity: 'status', base: 'ok', candidate: 'wrong-output', effect: 'regression' }];
            ask = async () => ({ cases: [{ id: 'a', latency: null, changes }], refused: [{ id: 'b' }], conclusion: 'regression' });
            await showComparison('x', 'y');
            ask = plain;
            for (const box of document.querySelectorAll('#backends input')) box.checked = box.value === 'candle';
            const known = devices;
            devices = [];
            const { backends } = asked();
            devices = known;
            return [document.querySelector('#compared').textContent, document.querySelector('#comparison-said').textContent, backends];
        })()",
    );
    let said = "Conclusion: regression. Not compared, because the conditions differ: b.";
    assert_eq!(shown, json!(["astatus: ok → wrong-output (regression)", said, ["candle"]]));

    browser.value(&choose("tenn_eeg", "64", 5000));
    browser.press("Enter", 13, "\r");
    wait(&mut browser, &format!("({row}).startsWith('tenn_eeg/candle-cpu-f32/64measuring')"));
    assert_eq!(browser.value("document.querySelector('#cancel').hidden"), false);
    browser.value("document.querySelector('#cancel').click()");
    wait(&mut browser, "document.querySelector('#state').textContent.startsWith('cancelled')");

    browser.open(&format!("{home}docs"));
    wait(
        &mut browser,
        "document.documentElement?.dataset.ready === 'yes' && document.querySelectorAll('section').length > 15",
    );
    // While something is measured, the history is read once per second. The page asks again.
    browser.complaints.retain(|complaint| !complaint.contains("503 (Service Unavailable)"));
    assert_eq!(browser.complaints, Vec::<String>::new());
}

fn has(command: &str, arguments: &[&str]) -> bool {
    let there = Command::new(command).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = there.is_ok_and(|status| status.success());
    if !is_there {
        left_out(format_args!("`{command} {}` does not work here", arguments.join(" ")));
    }
    is_there
}

#[test]
#[ignore = "it takes minutes; `scripts/test --all` runs it"]
fn the_clients_of_the_guide_work() {
    let workplace = workplace();
    let server = Server::start(&workplace, &[]);
    let guide = checkout().join("src/guide/service.md");
    let address = format!("http://{}", server.address);
    let of = |language: &str| -> Vec<String> {
        blocks(&guide, language).into_iter().map(|block| block.replace("http://127.0.0.1:8000", &address)).collect()
    };
    let [measuring, jobs] = of("sh").try_into().unwrap();
    if has("curl", &["--version"]) && has("jq", &["--version"]) && has_onnxruntime() {
        let done = workplace.command(Path::new("sh"), &["-e", "-c", &measuring]).finish().with_code(0);
        let lines: Vec<&str> = done.stdout.lines().rev().take(3).collect();
        let milliseconds = lines[2].strip_prefix("cpu ").and_then(|rest| rest.parse::<f64>().ok());
        assert!(milliseconds.is_some_and(|ms| ms > 0.0), "{}", done.stdout);
        assert!(
            lines[1].starts_with("not here, but: [\"cpu\"") && lines[1].contains("cuda is not available"),
            "{}",
            done.stdout
        );
        assert!(lines[0].contains("mps is not available"), "{}", done.stdout);
        let done = workplace.command(Path::new("sh"), &["-e", "-c", &jobs]).finish().with_code(0);
        assert!(
            done.stdout.contains("\"state\": \"queued\"") && done.stdout.contains("run_id,timestamp,"),
            "{}",
            done.stdout
        );
    }
    if has("python3", &["-c", "import requests"]) {
        let [client] = of("python").try_into().unwrap();
        let done = workplace.command(Path::new("python3"), &["-c", &client]).finish().with_code(0);
        assert_eq!(
            done.stdout.split_whitespace().count(),
            3 + usize::from(done.stdout.contains("ONNX Runtime")),
            "{}",
            done.stdout
        );
    }
}

#[test]
fn the_unit_is_one_that_systemd_reads() {
    if !has("systemd-analyze", &["--version"]) {
        return;
    }
    // The unit names an executable and a user of another machine.
    let unit = fs::read_to_string(checkout().join("scripts/inferbench.service")).unwrap();
    let unit = unit
        .replace("/srv/inferbench/target/release/inferbench", env!("CARGO_BIN_EXE_inferbench"))
        .replace("User=inferbench\n", "");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("inferbench.service");
    fs::write(&file, unit).unwrap();
    let done = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).finish();
    let complaints: Vec<&str> = done.stderr.lines().filter(|line| line.contains("inferbench.service")).collect();
    assert_eq!(complaints, Vec::<&str>::new(), "{}", done.stderr);
}
