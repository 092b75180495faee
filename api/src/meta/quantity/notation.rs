//! The notation of quantities: `500m`, `1.5Gi`, `1e3`.
//!
//! A quantity is an integer times a power of ten, with the family of suffixes it was written with. It is formatted in
//! canonical form: no fraction, the largest suffix without loss. Floats are never used.
//!
//! Where Kubernetes would print a wrong number (`1000E` has no suffix for 10²¹ and is printed as `1`), this prints a
//! right one with an exponent.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// The finest precision is a billionth; smaller amounts are rounded up to one.
const FINEST: i32 = -9;

const MILLI: i32 = -3;

/// Maximum number of digits of a mantissa: two more still fit an `i128`, which formatting and comparing rely on.
const MAX_DIGITS: u32 = 36;

/// With more digits, Kubernetes parses slowly and canonicalizes; with fewer, it may keep the original text.
const FAST_DIGITS: i32 = 18;

#[derive(Clone, Debug)]
pub struct Quantity {
    mantissa: i128,
    /// Power of ten.
    scale: i32,
    family: Family,
    /// The original text, if Kubernetes shows it unchanged.
    written: Option<Box<str>>,
}

/// The family of suffixes of a quantity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// `n u m k M G T P E`
    Decimal,
    /// `Ki Mi Gi Ti Pi Ei`
    Binary,
    /// `e3`
    Exponent,
}

/// Why a text is not a quantity, with the text of Kubernetes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum QuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse numeric part of quantity")]
    Number,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

impl Quantity {
    pub const ZERO: Quantity = Quantity { mantissa: 0, scale: 0, family: Family::Decimal, written: None };

    pub fn family(&self) -> Family {
        self.family
    }

    pub fn is_zero(&self) -> bool {
        self.mantissa == 0
    }

    pub fn is_negative(&self) -> bool {
        self.mantissa < 0
    }

    pub fn is_whole(&self) -> bool {
        self.whole().is_some()
    }

    /// Returns the sum, in the family of the left quantity unless that is zero. None if it is too large.
    pub fn checked_add(&self, other: &Quantity) -> Option<Quantity> {
        let family = if self.is_zero() { other.family } else { self.family };
        let scale = match (self.is_zero(), other.is_zero()) {
            (true, _) => other.scale,
            (_, true) => self.scale,
            _ => self.scale.min(other.scale),
        };
        let mantissa = aligned(self.mantissa, self.scale, scale)?.checked_add(aligned(
            other.mantissa,
            other.scale,
            scale,
        )?)?;
        Quantity::bounded(mantissa, scale, family)
    }

    pub fn checked_sub(&self, other: &Quantity) -> Option<Quantity> {
        self.checked_add(&Quantity { mantissa: -other.mantissa, written: None, ..other.clone() })
    }

    /// Returns the amount as an integer, rounded away from zero.
    pub fn ceil(&self) -> Option<i64> {
        let whole = match self.scale {
            0.. => aligned(self.mantissa, self.scale, 0)?,
            _ => div_away(self.mantissa, power(10, -self.scale)?),
        };
        i64::try_from(whole).ok()
    }

    /// Returns the amount in thousandths, rounded up. None if it is too large.
    pub(super) fn thousandths(&self) -> Option<i128> {
        match power(10, MILLI - self.scale) {
            Some(unit) => {
                Some(self.mantissa.div_euclid(unit) + i128::from(self.mantissa.rem_euclid(unit) != 0))
            }
            None => aligned(self.mantissa, self.scale, MILLI),
        }
    }

    /// Rounds up to thousandths, the precision of containers, limits and quotas.
    pub fn to_milli(&self) -> Quantity {
        match power(10, MILLI - self.scale).filter(|_| self.scale < MILLI) {
            None => self.clone(),
            Some(unit) => {
                let (mantissa, scale) = without_tens(div_away(self.mantissa, unit), MILLI);
                Quantity { mantissa, scale, family: self.family, written: None }
            }
        }
    }

    fn bounded(mantissa: i128, scale: i32, family: Family) -> Option<Quantity> {
        let (mantissa, scale) = without_tens(mantissa, scale);
        (digits(mantissa) <= MAX_DIGITS).then_some(Quantity { mantissa, scale, family, written: None })
    }

    /// Returns the amount if it is an integer.
    fn whole(&self) -> Option<i128> {
        match self.scale {
            0.. => aligned(self.mantissa, self.scale, 0),
            _ => {
                let unit = power(10, -self.scale)?;
                (self.mantissa % unit == 0).then(|| self.mantissa / unit)
            }
        }
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Quantity, QuantityError> {
        let parts = QuantityParts::split(text)?;
        let (base, exponent, family) = suffix(parts.suffix).ok_or(QuantityError::Suffix)?;
        let written = unchanged_text(text, &parts, exponent, family);
        let (unsigned, places) = parts.number()?;
        let (mut mantissa, mut scale) = (unsigned, -places);
        match base {
            Base::Ten => scale = scale.checked_add(exponent).ok_or(QuantityError::Suffix)?,
            Base::Two => (mantissa, scale) = times_two_to(exponent, mantissa, scale),
        }
        if scale < FINEST && mantissa != 0 {
            mantissa = match power(10, FINEST - scale) {
                Some(unit) => div_away(mantissa, unit),
                None => 1,
            };
            scale = FINEST;
        }
        let (mut mantissa, mut scale) = without_tens(mantissa, scale);
        let mut family = family;
        if family == Family::Binary && compare((mantissa, scale), (i64::MAX.into(), 0)) == Ordering::Greater {
            (mantissa, scale) = (i64::MAX.into(), 0);
        }
        if family == Family::Binary && mantissa != 0 && compare((mantissa, scale), (1, 0)) == Ordering::Less {
            family = Family::Decimal;
        }
        if parts.negative {
            mantissa = -mantissa;
        }
        Ok(Quantity { mantissa, scale, family, written })
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(written) = &self.written {
            return f.write_str(written);
        }
        if self.is_zero() {
            return f.write_str("0");
        }
        if self.family == Family::Binary
            && let Some(whole) = self.whole()
            && whole.abs() >= 1024
        {
            return write_binary(f, whole);
        }
        let (mut mantissa, mut exponent) = without_tens(self.mantissa, self.scale);
        while exponent % 3 != 0 {
            mantissa *= 10;
            exponent -= 1;
        }
        let known =
            DECIMAL.iter().find(|(_, power)| *power == exponent).filter(|_| self.family != Family::Exponent);
        match known {
            Some((suffix, _)) => write!(f, "{mantissa}{suffix}"),
            None if exponent == 0 => write!(f, "{mantissa}"),
            None => write!(f, "{mantissa}e{exponent}"),
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Quantity) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Quantity) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    /// Compares by amount: `1000m` and `1` are equal.
    fn cmp(&self, other: &Quantity) -> Ordering {
        compare((self.mantissa, self.scale), (other.mantissa, other.scale))
    }
}

const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
pub(super) const BINARY: [(&str, i32); 6] =
    [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

enum Base {
    Two,
    Ten,
}

fn suffix(text: &str) -> Option<(Base, i32, Family)> {
    if let Some((_, power)) = DECIMAL.iter().find(|(suffix, _)| *suffix == text) {
        return Some((Base::Ten, *power, Family::Decimal));
    }
    if let Some((_, power)) = BINARY.iter().find(|(suffix, _)| *suffix == text) {
        return Some((Base::Two, *power, Family::Binary));
    }
    let exponent = text.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some((Base::Ten, exponent, Family::Exponent))
}

/// The parts of a quantity's text.
struct QuantityParts<'a> {
    negative: bool,
    /// Digits before the point, without leading zeros.
    whole: &'a str,
    /// Digits after the point.
    fraction: &'a str,
    suffix: &'a str,
}

impl QuantityParts<'_> {
    fn split(text: &str) -> Result<QuantityParts<'_>, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let (negative, unsigned) = match text.as_bytes()[0] {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let (whole, rest) = span(unsigned.trim_start_matches('0'), |c| c.is_ascii_digit());
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => span(rest, |c| c.is_ascii_digit()),
            None => ("", rest),
        };
        let (_, tail) = span(suffix, |c| "eEinumkKMGTP".contains(c));
        let tail = tail.strip_prefix(['-', '+']).unwrap_or(tail);
        match tail.bytes().all(|byte| byte.is_ascii_digit()) {
            true => Ok(QuantityParts { negative, whole, fraction, suffix }),
            false => Err(QuantityError::Format),
        }
    }

    /// Returns all digits as one number, and how many of them are after the point.
    fn number(&self) -> Result<(i128, i32), QuantityError> {
        let fraction = self.fraction.trim_end_matches('0');
        let places = i32::try_from(fraction.len()).map_err(|_| QuantityError::Number)?;
        let digits = format!("{}{fraction}", self.whole);
        let digits = digits.trim_start_matches('0');
        if digits.is_empty() {
            return Ok((0, 0));
        }
        if digits.len() > MAX_DIGITS as usize {
            return Err(QuantityError::Number);
        }
        Ok((digits.parse().map_err(|_| QuantityError::Number)?, places))
    }
}

/// Returns the original text if Kubernetes shows it unchanged. Its test for "already canonical" accepts a plus sign,
/// leading zeros and three decimals.
fn unchanged_text(text: &str, parts: &QuantityParts<'_>, exponent: i32, family: Family) -> Option<Box<str>> {
    let length = |digits: &str| i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let whole = if parts.whole.is_empty() { "0" } else { parts.whole };
    let free = FAST_DIGITS.saturating_sub(length(whole)).saturating_sub(length(parts.fraction));
    match family {
        Family::Binary => {
            let fits = parts.fraction.is_empty() && 15 - length(whole) - exponent * 3 / 10 > 0;
            let odd = whole.parse::<u64>().is_ok_and(|value| value % 8 != 0);
            (fits && odd).then(|| text.into())
        }
        Family::Decimal | Family::Exponent => {
            let scale = exponent.checked_sub(length(parts.fraction))?;
            let shifted = format!("{whole}{}", parts.fraction);
            let canonical = scale % 3 == 0 && !shifted.ends_with("000") && !shifted.starts_with('0');
            (free >= 0 && scale >= FINEST && canonical).then(|| text.into())
        }
    }
}

fn span(text: &str, member: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !member(c)).unwrap_or(text.len()))
}

fn write_binary(f: &mut fmt::Formatter<'_>, whole: i128) -> fmt::Result {
    let (mut amount, mut suffix) = (whole, "");
    for (next, _) in BINARY {
        if amount % 1024 != 0 {
            break;
        }
        (amount, suffix) = (amount / 1024, next);
    }
    write!(f, "{amount}{suffix}")
}

/// Multiplies by a power of two and drops decimals that do not fit. A product that still does not fit is far above the
/// maximum of binary amounts.
fn times_two_to(exponent: i32, mut mantissa: i128, mut scale: i32) -> (i128, i32) {
    loop {
        match mantissa.checked_mul(1 << exponent) {
            Some(product) => return (product, scale),
            None if scale >= 0 => return (i128::MAX, 0),
            None => (mantissa, scale) = (div_away(mantissa, 10), scale + 1),
        }
    }
}

fn power(base: i128, exponent: i32) -> Option<i128> {
    base.checked_pow(u32::try_from(exponent).ok()?)
}

fn digits(mantissa: i128) -> u32 {
    mantissa.unsigned_abs().checked_ilog10().map_or(0, |log| log + 1)
}

/// Returns the mantissa at a smaller scale.
fn aligned(mantissa: i128, from: i32, to: i32) -> Option<i128> {
    match mantissa {
        0 => Some(0),
        _ => mantissa.checked_mul(power(10, from.checked_sub(to)?)?),
    }
}

fn div_away(number: i128, unit: i128) -> i128 {
    let quotient = number / unit;
    match number % unit {
        0 => quotient,
        _ => quotient + number.signum(),
    }
}

fn without_tens(mut mantissa: i128, mut scale: i32) -> (i128, i32) {
    if mantissa == 0 {
        return (0, 0);
    }
    while mantissa % 10 == 0 && scale < i32::MAX {
        mantissa /= 10;
        scale += 1;
    }
    (mantissa, scale)
}

fn compare((a, a_scale): (i128, i32), (b, b_scale): (i128, i32)) -> Ordering {
    if a.signum() != b.signum() || a == 0 {
        return a.signum().cmp(&b.signum());
    }
    let magnitude = |mantissa: i128, scale: i32| i64::from(digits(mantissa)) + i64::from(scale);
    let by_size = magnitude(a, a_scale).cmp(&magnitude(b, b_scale)).then_with(|| {
        // The same magnitude: the scales differ by less than the number of digits, so aligning cannot overflow.
        let scale = a_scale.min(b_scale);
        let aligned = |mantissa, from| aligned(mantissa, from, scale).unwrap_or(i128::MAX).unsigned_abs();
        aligned(a, a_scale).cmp(&aligned(b, b_scale))
    });
    if a > 0 { by_size } else { by_size.reverse() }
}

#[cfg(test)]
mod tests;
