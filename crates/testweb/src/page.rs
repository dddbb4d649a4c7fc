//! Pages: going somewhere, looking, clicking, typing; and what went wrong meanwhile.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::find::{Unavailable, find};
use crate::wire::{PATIENCE, Wire};

/// A browser, until this and its pages are dropped.
#[derive(Debug)]
pub struct Browser(Arc<Wire>);

/// A page of it.
#[derive(Debug)]
pub struct Page {
    wire: Arc<Wire>,
    session: String,
}

/// What a page's policy forbade is said where all else is said that went wrong.
const TELL: &str = "addEventListener('securitypolicyviolation', (event) => \
    console.error(`policy: ${event.violatedDirective} forbids ${event.blockedURI}`));";

impl Browser {
    /// Starts one.
    ///
    /// # Errors
    /// When there is none on this machine, or when it does not start.
    pub fn open() -> Result<Browser, Unavailable> {
        let program = find()?;
        let wire = Wire::open(&program);
        let wire = wire.map_err(|error| Unavailable(format!("{}: {error}", program.display())))?;
        Ok(Browser(Arc::new(wire)))
    }

    /// A new page, of this many points across and down, light or dark.
    #[must_use]
    pub fn page(&self, (width, height): (u32, u32), colours: &str) -> Page {
        let target = self
            .0
            .ask(None, "Target.createTarget", &json!({"url": "about:blank"}));
        let target = json!({"targetId": target["targetId"], "flatten": true});
        let attached = self.0.ask(None, "Target.attachToTarget", &target);
        let session = attached["sessionId"].as_str().expect("a session");
        let page = Page {
            wire: self.0.clone(),
            session: session.to_owned(),
        };
        for domain in ["Page", "Runtime", "Log"] {
            page.ask(&format!("{domain}.enable"), &json!({}));
        }
        page.ask(
            "Page.addScriptToEvaluateOnNewDocument",
            &json!({"source": TELL}),
        );
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
        });
        page.ask("Emulation.setDeviceMetricsOverride", &size);
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": colours}]});
        page.ask("Emulation.setEmulatedMedia", &media);
        page
    }
}

impl Page {
    fn ask(&self, method: &str, params: &Value) -> Value {
        self.wire.ask(Some(&self.session), method, params)
    }

    /// Goes there.
    pub fn go(&self, url: &str) {
        let gone = self.ask("Page.navigate", &json!({"url": url}));
        assert!(gone.get("errorText").is_none(), "{url}: {gone}");
    }

    /// What this expression comes to, once it is settled.
    #[track_caller]
    pub fn value(&self, expression: &str) -> Value {
        let asked = json!({
            "expression": expression, "awaitPromise": true, "returnByValue": true,
            "userGesture": true,
        });
        let answer = self.ask("Runtime.evaluate", &asked);
        let wrong = answer.get("exceptionDetails");
        assert!(wrong.is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until this expression is true, also over pages that come and go.
    #[track_caller]
    pub fn until(&self, expression: &str) {
        let begin = std::time::Instant::now();
        // Looked at in the page, for a while at a time: a page that goes takes the question along.
        let look = format!(
            "new Promise((told) => {{ const end = Date.now() + 2000; const look = () => {{ \
             let is = false; try {{ is = Boolean({expression}); }} catch {{ }} \
             if (is || Date.now() > end) told(is); else setTimeout(look, 25); }}; look(); }})"
        );
        loop {
            let asked = json!({
                "expression": look, "awaitPromise": true, "returnByValue": true,
            });
            let session = Some(self.session.as_str());
            let answer = self.wire.try_ask(session, "Runtime.evaluate", &asked);
            if answer["result"]["result"]["value"] == true {
                return;
            }
            if begin.elapsed() > PATIENCE {
                let text = self.value("document.body.innerText");
                panic!("`{expression}` does not become true; the page says {text}");
            }
        }
    }

    /// Waits until the page shows this text.
    #[track_caller]
    pub fn shows(&self, text: &str) {
        self.until(&format!(
            "document.body.innerText.includes({})",
            Value::from(text)
        ));
    }

    /// Clicks on the first button or link of this name, within what the selector finds that has
    /// this text in it.
    #[track_caller]
    pub fn click(&self, (selector, text): (&str, &str), name: &str) {
        let element = format!(
            "[...document.querySelectorAll({})].filter((part) => \
             part.innerText.includes({})).flatMap((part) => \
             [...part.querySelectorAll('a, button')]).find((one) => \
             one.textContent.trim() === {})",
            Value::from(selector),
            Value::from(text),
            Value::from(name)
        );
        self.until(&element);
        let place = self.value(&format!(
            "(() => {{ const one = {element}; one.scrollIntoView({{ block: 'center' }}); \
             const box = one.getBoundingClientRect(); \
             return [box.x + box.width / 2, box.y + box.height / 2]; }})()"
        ));
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({
                "type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1,
            });
            self.ask("Input.dispatchMouseEvent", &event);
        }
    }

    /// Presses a key that is a letter or a sign.
    pub fn press(&self, key: &str) {
        let down = json!({"type": "keyDown", "text": key, "key": key});
        self.ask("Input.dispatchKeyEvent", &down);
        self.ask(
            "Input.dispatchKeyEvent",
            &json!({"type": "keyUp", "key": key}),
        );
    }

    /// Types this text into what the selector finds, in place of what is there.
    #[track_caller]
    pub fn fill(&self, selector: &str, text: &str) {
        let found = format!("document.querySelector({})", Value::from(selector));
        self.until(&found);
        self.value(&format!("{found}.focus(), {found}.select()"));
        self.ask("Input.insertText", &json!({"text": text}));
    }

    /// A picture of what is seen, into this file.
    pub fn picture(&self, file: &Path) {
        let taken = self.ask("Page.captureScreenshot", &json!({"format": "png"}));
        let bytes = decoded(taken["data"].as_str().expect("a picture"));
        std::fs::write(file, bytes).expect("a picture is kept");
    }

    /// Whatever the page complained about, and dialogs that its scripts opened.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        // What was said before this answer was given is heard before it.
        self.value("0");
        let mut found = Vec::new();
        for event in self.wire.events(&self.session) {
            let params = &event["params"];
            let wrong = match event["method"].as_str().unwrap_or_default() {
                "Runtime.exceptionThrown" | "Page.javascriptDialogOpening" => true,
                "Runtime.consoleAPICalled" => params["type"] == "error",
                "Log.entryAdded" => params["entry"]["level"] == "error",
                _ => false,
            };
            if wrong {
                found.push(params.to_string());
            }
        }
        found
    }

    /// Nothing went wrong on this page.
    ///
    /// # Panics
    /// When something did.
    #[track_caller]
    pub fn is_sound(&self) {
        let complaints = self.complaints();
        assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    }
}

/// Base 64, as the browser writes pictures.
fn decoded(text: &str) -> Vec<u8> {
    let value = |sign: u8| match sign {
        b'A'..=b'Z' => Some(u32::from(sign - b'A')),
        b'a'..=b'z' => Some(u32::from(sign - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(sign - b'0') + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let (mut bytes, mut held, mut bits) = (Vec::new(), 0_u32, 0);
    for six in text.bytes().filter_map(value) {
        held = (held << 6 | six) & 0xFFFF;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits & 0xFF) as u8);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_64_is_read() {
        for (text, bytes) in [
            ("", ""),
            ("Zg==", "f"),
            ("Zm9v", "foo"),
            ("Zm9vYmE=", "fooba"),
        ] {
            assert_eq!(decoded(text), bytes.as_bytes());
        }
    }
}
