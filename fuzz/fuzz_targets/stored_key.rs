//! Any text as a stored key, and any bytes as the parts of one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::Key;

fuzz_target!(|input: &[u8]| {
    if let Ok(text) = str::from_utf8(input)
        && let Ok(key) = text.parse::<Key>()
    {
        assert_eq!(key.as_str(), text);
        assert!(key.parts().count() > 0);
        assert!(!format!("{key:?}").contains(text));
    }
    let mut parts = input.splitn(3, |byte| *byte == 0);
    if let (Some(kind), Some(first), Some(second)) = (parts.next(), parts.next(), parts.next()) {
        let kind = String::from_utf8_lossy(kind);
        let key = Key::new(&kind, first).and("k", second);
        assert_eq!(key.as_str().parse(), Ok(key.clone()));
        let values: Vec<_> = key.parts().map(|part| part.value()).collect();
        for (value, stored) in [first, second].into_iter().zip(&values) {
            let clear = (value.len() <= 64).then(|| String::from_utf8_lossy(value));
            assert_eq!(*stored, clear);
        }
    }
});
