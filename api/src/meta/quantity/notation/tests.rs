use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Quantity {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn canonical_forms() {
    for (text, expected) in [
        ("0", "0"),
        ("-0", "0"),
        ("0Ki", "0"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.5", "500m"),
        ("1.5", "1500m"),
        (".5", "500m"),
        ("5.", "5."),
        ("100", "100"),
        ("1000", "1k"),
        ("1024", "1024"),
        ("12345678", "12345678"),
        ("10000000", "10M"),
        ("100k", "100k"),
        ("0.5Gi", "512Mi"),
        ("1.5Gi", "1536Mi"),
        ("1024Mi", "1Gi"),
        ("1000Ki", "1000Ki"),
        ("1025Ki", "1025Ki"),
        ("0.1Ki", "102400m"),
        ("0.0005Ki", "512m"),
        ("1e3", "1e3"),
        ("1E3", "1E3"),
        ("1000e0", "1e3"),
        ("12e6", "12e6"),
        ("1e1", "10"),
        ("1.1e1", "1.1e1"),
        ("1e-3", "1e-3"),
        ("100n", "100n"),
        ("0.1n", "1n"),
        ("1e-100", "1e-9"),
        ("-1.5", "-1500m"),
        ("+5", "+5"),
        ("01Mi", "01Mi"),
        ("1.500", "1.500"),
        ("3.000", "3"),
        ("+", "0"),
        ("1.100Gi", "1181116006400m"),
        ("1234567890123456789012345", "1234567890123456789012345"),
        ("1000E", "1e21"),
        ("9Ei", "9223372036854775807"),
        ("1Ei", "1Ei"),
        ("100Ei", "9223372036854775807"),
        ("1e100", "10e99"),
    ] {
        assert_eq!(parse(text).to_string(), expected, "{text}");
    }
}

#[test]
fn invalid_quantities_are_refused() {
    for (text, expected) in [
        ("", QuantityError::Format),
        ("1.2.3", QuantityError::Format),
        ("five", QuantityError::Format),
        ("1 Gi", QuantityError::Format),
        ("1ki", QuantityError::Suffix),
        ("1Kii", QuantityError::Suffix),
        ("1e", QuantityError::Suffix),
        ("1e99999999999", QuantityError::Suffix),
        ("1K", QuantityError::Suffix),
        (&"9".repeat(60), QuantityError::Number),
    ] {
        assert_eq!(text.parse::<Quantity>(), Err(expected), "{text}");
    }
}

#[test]
fn amounts_compare_whatever_their_suffix() {
    for (left, order, right) in [
        ("1", Ordering::Equal, "1000m"),
        ("1Ki", Ordering::Greater, "1k"),
        ("1Gi", Ordering::Equal, "1024Mi"),
        ("1e3", Ordering::Equal, "1k"),
        ("-1", Ordering::Less, "0"),
        ("-2", Ordering::Less, "-1"),
        ("999m", Ordering::Less, "1"),
        ("1e2000000000", Ordering::Greater, "1"),
        ("0", Ordering::Equal, "0Ki"),
    ] {
        assert_eq!(parse(left).cmp(&parse(right)), order, "{left} {right}");
    }
}

#[test]
fn sums_keep_the_family_of_the_left() {
    for (left, right, expected) in [
        ("1Gi", "512Mi", "1536Mi"),
        ("500m", "500m", "1"),
        ("0", "1Gi", "1Gi"),
        ("1Gi", "1", "1073741825"),
        ("1", "1Ki", "1025"),
        ("1k", "-1k", "0"),
    ] {
        assert_eq!(parse(left).checked_add(&parse(right)).expect("fits").to_string(), expected);
    }
    assert_eq!(parse("1e100").checked_add(&parse("1")), None);
    assert_eq!(parse("3").checked_sub(&parse("500m")).expect("fits").to_string(), "2500m");
    for (text, expected) in [("0.1n", "1m"), ("1e-100", "1e-3"), ("1500m", "1500m"), ("1.2345", "1235m")] {
        assert_eq!(parse(text).to_milli().to_string(), expected);
    }
    assert_eq!(parse("1001m").ceil(), Some(2));
    assert_eq!(parse("1Ki").ceil(), Some(1024));
    assert_eq!(parse("1e30").ceil(), None);
}

/// Up to a million times the largest suffix: sums of two stay below the maximum of binary amounts, which only parsing
/// has.
fn quantities() -> impl Strategy<Value = String> {
    let suffixes = prop::sample::select(vec![
        "", "n", "u", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti", "e3", "e-3", "E5",
    ]);
    (any::<bool>(), 0u64..1_000_000, prop::option::of(0u32..10_000), suffixes).prop_map(
        |(negative, whole, fraction, suffix)| {
            let sign = if negative { "-" } else { "" };
            let fraction = fraction.map(|digits| format!(".{digits}")).unwrap_or_default();
            format!("{sign}{whole}{fraction}{suffix}")
        },
    )
}

proptest! {
    #[test]
    fn printing_loses_nothing(text in quantities()) {
        let quantity = parse(&text);
        prop_assert_eq!(&parse(&quantity.to_string()), &quantity);
    }

    #[test]
    fn a_sum_prints_as_itself_and_can_be_taken_back(a in quantities(), b in quantities()) {
        let sum = parse(&a).checked_add(&parse(&b)).expect("amounts of this size fit");
        prop_assert_eq!(&parse(&sum.to_string()), &sum);
        prop_assert_eq!(sum.checked_sub(&parse(&b)).expect("fits"), parse(&a));
    }

    #[test]
    fn any_text_parses_or_fails_without_a_panic(text in "[-+]?[0-9.]{0,50}[eEinumkKMGTP]{0,3}[-+]?[0-9]{0,12}|.{0,20}") {
        if let Ok(quantity) = text.parse::<Quantity>() {
            let _ = (quantity.to_string(), quantity.ceil(), quantity.cmp(&Quantity::ZERO));
        }
    }
}
