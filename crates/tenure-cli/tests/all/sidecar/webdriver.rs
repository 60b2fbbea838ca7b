//! A real browser, driven over WebDriver with plain HTTP.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::common::eventually;
use crate::support::Process;
use tenure_testbed::http;

/// Headless, as root if need be, and talking to nobody but the page.
const FLAGS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--force-color-profile=srgb",
];

const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// One browser with one window. Dropping it ends it.
pub(crate) struct Browser {
    at: SocketAddr,
    session: String,
    // Dropped in this order: the driver, then the browser's own directory.
    _driver: Process,
    _profile: tempfile::TempDir,
}

impl Browser {
    pub(crate) fn start() -> Browser {
        let profile = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("chromedriver");
        command.arg(format!("--port={port}")).stdin(Stdio::null());
        let driver = Process::new(&mut command);
        let at = SocketAddr::from(([127, 0, 0, 1], port));
        eventually("chromedriver listens", || TcpStream::connect(at).ok());
        let mut flags: Vec<String> = FLAGS.iter().map(|flag| (*flag).to_owned()).collect();
        flags.push(format!("--user-data-dir={}", profile.path().display()));
        let wish = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": { "args": flags },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let mut browser =
            Browser { at, session: String::new(), _driver: driver, _profile: profile };
        let started = browser.call("POST", "/session", &wish);
        browser.session = format!("/session/{}", started["sessionId"].as_str().unwrap());
        browser
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let headers = "content-type: application/json\r\n";
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let answer = http::request(self.at, method, path, headers, &body).unwrap();
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()["value"].clone()
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.call("POST", &format!("{}{path}", self.session), body)
    }

    pub(crate) fn open(&self, url: &str) {
        self.post("/url", &json!({ "url": url }));
    }

    /// What a piece of script returns.
    pub(crate) fn script(&self, text: &str) -> Value {
        self.post("/execute/sync", &json!({ "script": text, "args": [] }))
    }

    /// The text of the first element that fits.
    pub(crate) fn text(&self, selector: &str) -> String {
        let script = format!(
            "const e = document.querySelector({}); return e ? e.textContent : null",
            json!(selector)
        );
        self.script(&script).as_str().unwrap_or_default().to_owned()
    }

    /// Waits until an element shows this text.
    #[track_caller]
    pub(crate) fn shows(&self, selector: &str, text: &str) {
        eventually(&format!("{selector} shows {text:?}"), || {
            self.text(selector).contains(text).then_some(())
        });
    }

    fn element(&self, selector: &str) -> String {
        let found = self.post("/element", &json!({ "using": "css selector", "value": selector }));
        found[ELEMENT].as_str().unwrap_or_else(|| panic!("{selector}: {found}")).to_owned()
    }

    pub(crate) fn click(&self, selector: &str) {
        self.post(&format!("/element/{}/click", self.element(selector)), &json!({}));
    }

    /// Types into whatever has the focus.
    pub(crate) fn keys(&self, text: &str) {
        let actions: Vec<Value> = text
            .chars()
            .flat_map(|key| {
                let key = key.to_string();
                [
                    json!({ "type": "keyDown", "value": key }),
                    json!({ "type": "keyUp", "value": key }),
                ]
            })
            .collect();
        let keyboard = json!({ "type": "key", "id": "keys", "actions": actions });
        self.post("/actions", &json!({ "actions": [keyboard] }));
    }

    /// What a screen reader says an element is: its role and its name.
    pub(crate) fn announced(&self, selector: &str) -> (String, String) {
        let element = self.element(selector);
        let ask = |what: &str| {
            let path = format!("{}/element/{element}/{what}", self.session);
            self.call("GET", &path, &Value::Null).as_str().unwrap_or_default().to_owned()
        };
        (ask("computedrole"), ask("computedlabel"))
    }

    pub(crate) fn resize(&self, width: u32, height: u32) {
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
        });
        self.cdp("Emulation.setDeviceMetricsOverride", &size);
    }

    /// `light` or `dark`.
    pub(crate) fn prefer(&self, scheme: &str) {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.cdp("Emulation.setEmulatedMedia", &json!({ "features": [feature] }));
    }

    fn cdp(&self, command: &str, params: &Value) {
        self.post("/goog/cdp/execute", &json!({ "cmd": command, "params": params }));
    }

    /// A picture of the window, as base64.
    pub(crate) fn picture(&self) -> String {
        let path = format!("{}/screenshot", self.session);
        self.call("GET", &path, &Value::Null).as_str().unwrap().to_owned()
    }

    /// What the console of the browser holds since it was last asked, by the level given or worse.
    pub(crate) fn console_errors(&self) -> Vec<String> {
        let log = self.post("/se/log", &json!({ "type": "browser" }));
        let errors = log.as_array().unwrap().iter().filter(|entry| entry["level"] == "SEVERE");
        errors.map(|entry| entry["message"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            // Ends the browser; the driver ends with its process.
            let _gone = http::request(self.at, "DELETE", &self.session, "", "");
        }
    }
}
