use super::compile;

const MAX_BYTES: usize = 1 << 20;

#[test]
fn patterns_mean_what_they_mean_to_go() {
    for (pattern, fits, fails) in [
        (r"^\d+$", "12", "١٢"),
        (r"^[\w.-]+$", "a_b-c.d", "é"),
        (r"^\S+$", "é", "a b"),
        (r"^[^\s]+$", "ab", "a b"),
        (r"^[^\d]$", "x", "5"),
        (r"^[\D]$", "x", "5"),
        (r"^\S$", "\u{a0}", " "),
        (r"^[[:alpha:]]+$", "ab", "a1"),
        (r"^[[:^alpha:]]+$", "12", "a1"),
        (r"^[[:alpha:]-]$", "-", "1"),
        (r"^[a[]+$", "a[", "b"),
        (r"^[[]$", "[", "a"),
        (r"^[]a]$", "]", "b"),
        (r"^[^]a]$", "b", "]"),
        (r"^[a&&b]+$", "a&b", "c"),
        (r"^[a~~b]+$", "a~b", "c"),
        (r"^[+--]+$", "+,-", "."),
        (r"^[a-]+$", "a-", "b"),
        (r"^\[x\]$", "[x]", "x"),
        (r"^{a{2}{}$", "{aa{}", "aa"),
        (r"^a{,2}$", "a{,2}", "aa"),
        (r"^\<a\>$", "<a>", "a"),
        (r"^\Qa.b\E$", "a.b", "axb"),
        (r"^\Qa.b", "a.bc", "axb"),
        (r"^a\Q+\E+$", "a++", "aa"),
        (r"\bfoo\b", "a foo b", "afoob"),
        (r"(?i)^STRASSE$", "strasse", "straße"),
        (r"^(?s:.)(?-s:.)$", "\na", "a\n"),
        (r"^(?)a$", "a", "b"),
        (r"^(?P<y>\d{4})-(?<m>\d\d)$", "2026-11", "26-11"),
        (r"^\pL\p{Greek}\P{^Lu}$", "éαA", "1αA"),
        (r"^[\pL\d]+$", "é1", "-"),
        (r"^\x41\x{1F600}\101\07\n$", "A\u{1F600}A\u{7}\n", "A"),
        (r"^(a|)*?$", "aa", "b"),
        (r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(Ki|Mi|m|)$", "1.5Mi", "x"),
        (r"^a # b$", "a # b", "a"),
        (r"^\/\-\@$", "/-@", "x"),
        ("^\u{e9}+$", "éé", "e"),
    ] {
        let found = compile(pattern, MAX_BYTES).unwrap_or_else(|e| panic!("{pattern}: {e}"));
        assert!(found.is_match(fits), "{pattern} {fits}: {found}");
        assert!(!found.is_match(fails), "{pattern} {fails}: {found}");
    }
}

#[test]
fn mistakes_are_told_in_gos_words() {
    for (pattern, why) in [
        ("a(b", "missing closing ): `a(b`"),
        ("a)b", "unexpected ): `a)b`"),
        ("[a", "missing closing ]: `[a`"),
        ("x[]", "missing closing ]: `[]`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a*?+", "invalid nested repetition operator: `*?+`"),
        ("a{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("(+a)", "missing argument to repetition operator: `+`"),
        ("a|?", "missing argument to repetition operator: `?`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("a{3,2}", "invalid repeat count: `{3,2}`"),
        ("a{99999999999}", "invalid repeat count: `{99999999999}`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("[[:word2:]]", "invalid character class range: `[:word2:]`"),
        (r"\p{Klingon}", "invalid character class range: `\\p{Klingon}`"),
        (r"\pX", "invalid character class range: `\\pX`"),
        (r"\p{L", "invalid character class range: `\\p{L`"),
        (r"a\", "trailing backslash at end of expression: ``"),
        (r"(a)\1", "invalid escape sequence: `\\1`"),
        (r"\y", "invalid escape sequence: `\\y`"),
        (r"\C", "invalid escape sequence: `\\C`"),
        (r"\x{110000}", "invalid escape sequence: `\\x{110000}`"),
        (r"[\Z]", "invalid escape sequence: `\\Z`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?x)a", "invalid or unsupported Perl syntax: `(?x`"),
        ("(?i-)a", "invalid or unsupported Perl syntax: `(?i-)`"),
        ("(?<=a)b", "invalid named capture: `(?<=a)b`"),
        ("(?P<n a>x)", "invalid named capture: `(?P<n a>`"),
    ] {
        let error = compile(pattern, MAX_BYTES).map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), format!("error parsing regexp: {why}"), "{pattern}");
    }
    let deep = ["(".repeat(1_001), ")".repeat(1_001)].concat();
    assert!(compile(&deep, MAX_BYTES).unwrap_err().to_string().contains("nests too deeply"));
    let large = compile("(x{1000}){1000}", MAX_BYTES).unwrap_err();
    assert_eq!(large.to_string(), "error parsing regexp: expression too large: `(x{1000}){1000}`");
    assert!(compile(&["(".repeat(900), ")".repeat(900)].concat(), MAX_BYTES).is_ok());
}

/// Everything that the translation lets through is one for the crate, whatever the text.
#[test]
fn what_is_translated_can_be_compiled() {
    let pieces = [
        "a",
        "(",
        ")",
        "[",
        "]",
        "^",
        "-",
        "\\",
        "\\d",
        "\\Q",
        "\\E",
        "?",
        "*",
        "{2}",
        "{",
        "|",
        "(?i)",
        "[:digit:]",
        "&&",
        ":",
    ];
    let (mut seed, mut compiled) = (7_u64, 0);
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..8 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text.push_str(pieces[usize::try_from((seed >> 33) % pieces.len() as u64).unwrap()]);
        }
        match compile(&text, MAX_BYTES) {
            Ok(_) => compiled += 1,
            Err(error) => assert!(!error.to_string().contains("internal error"), "{text}: {error}"),
        }
    }
    assert!(compiled > 500, "{compiled}");
}
