//! Licence expressions, as far as crates use them.

use anyhow::{Result, bail};

/// Whether `expression` can be met with the licences in `allowed` alone.
///
/// Understands `AND`, `OR`, brackets, `WITH` (as a licence of its own) and the old `/` for `OR`.
pub(crate) fn is_met(expression: &str, allowed: &[String]) -> Result<bool> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { tokens: &tokens, allowed };
    let met = parser.any()?;
    if !parser.tokens.is_empty() {
        bail!("cannot read the licence expression `{expression}`");
    }
    Ok(met)
}

struct Parser<'a> {
    tokens: &'a [&'a str],
    allowed: &'a [String],
}

impl<'a> Parser<'a> {
    fn any(&mut self) -> Result<bool> {
        let mut met = self.all()?;
        while self.accept("OR") {
            met |= self.all()?;
        }
        Ok(met)
    }

    fn all(&mut self) -> Result<bool> {
        let mut met = self.one()?;
        while self.accept("AND") {
            met &= self.one()?;
        }
        Ok(met)
    }

    fn one(&mut self) -> Result<bool> {
        if self.accept("(") {
            let met = self.any()?;
            if !self.accept(")") {
                bail!("a bracket is missing in a licence expression");
            }
            return Ok(met);
        }
        let Some(name) = self.next() else { bail!("a licence expression ends too early") };
        if !self.accept("WITH") {
            return Ok(self.allowed.iter().any(|licence| licence == name));
        }
        let Some(exception) = self.next() else { bail!("a licence expression ends too early") };
        Ok(self.allowed.contains(&format!("{name} WITH {exception}")))
    }

    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        Some(first)
    }

    fn accept(&mut self, token: &str) -> bool {
        let found = self.tokens.first() == Some(&token);
        if found {
            self.tokens = &self.tokens[1..];
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(expression: &str) -> bool {
        let allowed = ["MIT", "Apache-2.0", "Unicode-3.0"].map(str::to_owned);
        is_met(expression, &allowed).unwrap()
    }

    #[test]
    fn expressions_are_met_by_the_allowed_licences_only() {
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0 OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
        ] {
            assert!(met(good), "{good}");
        }
        for bad in [
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "Apache-2.0 WITH LLVM-exception",
            "GPL-2.0 AND (MIT OR Apache-2.0)",
            "MIT-0",
        ] {
            assert!(!met(bad), "{bad}");
        }
    }

    #[test]
    fn broken_expressions_are_errors() {
        for broken in ["", "MIT OR", "(MIT", "MIT Apache-2.0", "MIT)", "MIT WITH"] {
            assert!(is_met(broken, &["MIT".to_owned()]).is_err(), "{broken}");
        }
    }
}
