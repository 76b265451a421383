//! `/sign-in`: the page. The server reads its forms.

use askama::Template;
use url::form_urlencoded;

use crate::assets;

/// The page of the sign-in.
#[derive(Template)]
#[template(path = "sign_in.html")]
pub struct SignInPage {
    /// Where to go then.
    pub next: String,
    /// The text of a link that works once.
    pub link: Option<String>,
    /// Whether people can sign in with the provider of the operator.
    pub has_provider: bool,
    /// Why the last try failed.
    pub refusal: Option<&'static str>,
    /// Whether the page came by http through a network, so that no visitor can sign in.
    pub is_open: bool,
    /// The environment, for example `prod`.
    pub environment: String,
}

impl SignInPage {
    /// The page.
    #[must_use]
    pub fn to_html(&self) -> String {
        self.render().unwrap_or_default()
    }
}

/// The address of the sign-in that leads back to a page.
#[must_use]
pub fn path_back_to(address: &str) -> String {
    let next = safe_address(address);
    if next == "/" {
        return "/sign-in".to_owned();
    }
    let next: String = form_urlencoded::byte_serialize(next.as_bytes()).collect();
    format!("/sign-in?next={next}")
}

/// Bytes of the longest address that a sign-in leads back to: it is kept in a cookie, of which browsers store 4 KiB.
const LONGEST_ADDRESS: usize = 1500;

/// The address, if it is one of this site; otherwise the overview. A browser would read `//host` and `/\host` as another site.
#[must_use]
pub fn safe_address(address: &str) -> &str {
    let is_path = address.starts_with('/') && !address.starts_with("//");
    let is_plain = address.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let is_page = is_path && is_plain && address.len() <= LONGEST_ADDRESS && !address.starts_with("/sign-");
    if is_page { address } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_in_leads_to_pages_of_this_site_only() {
        assert_eq!(path_back_to("/runs?state=failed"), "/sign-in?next=%2Fruns%3Fstate%3Dfailed");
        assert_eq!(path_back_to("/"), "/sign-in");
        for elsewhere in ["//evil.example", "/\\evil.example", "https://evil.example", "", "/a\r\nb", "/sign-out"] {
            assert_eq!(safe_address(elsewhere), "/", "{elsewhere}");
        }
        let long = format!("/runs?{}", "a".repeat(LONGEST_ADDRESS));
        assert_eq!((safe_address(&long), safe_address(&long[..LONGEST_ADDRESS])), ("/", &long[..LONGEST_ADDRESS]));
    }
}
