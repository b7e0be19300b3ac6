//! The profiles of a folder of reports: `profiles/<id>/profile.html`, and beside it `profile.json`.

use std::collections::BTreeMap;
use std::path::{MAIN_SEPARATOR, Path};

use serde::Deserialize;

use crate::history::{DATA, PAGE, PROFILES};

/// A profile with a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileLink {
    /// The page, relative to the folder of reports.
    pub page: String,
    /// The machine; empty if it is not known.
    pub host_id: String,
    /// The ids of its cases.
    pub case_ids: Vec<String>,
}

/// The profiles that lie in a folder of reports, the newest first. Those without a page or with data that cannot be read are left out.
pub fn profile_links(reports: &Path) -> Vec<ProfileLink> {
    #[derive(Deserialize)]
    struct Cases {
        #[serde(default)]
        host_id: String,
        cases: Vec<Case>,
    }
    #[derive(Deserialize)]
    struct Case {
        case_id: String,
    }
    let folders = std::fs::read_dir(reports.join(PROFILES)).into_iter().flatten().flatten();
    let link = |folder: std::fs::DirEntry| {
        let name = folder.file_name().into_string().ok()?;
        let data = std::fs::read(folder.path().join(DATA)).ok()?;
        let Cases { host_id, cases } = serde_json::from_slice(&data).ok()?;
        let is_there = folder.path().join(PAGE).is_file();
        let case_ids = cases.into_iter().map(|case| case.case_id).collect();
        is_there.then(|| ProfileLink { page: format!("{PROFILES}/{}/{PAGE}", encoded(&name)), host_id, case_ids })
    };
    let mut links: Vec<ProfileLink> = folders.filter_map(link).collect();
    // Their names begin with the time.
    links.sort_by(|a, b| b.page.cmp(&a.page));
    links
}

/// The newest page of each case that has a profile, by its machine and id, as a link from a page in `folder`.
pub fn newest_pages(reports: &Path, folder: &Path) -> BTreeMap<(String, String), String> {
    let to_reports = match folder {
        folder if folder == reports => String::new(),
        folder if folder.parent() == Some(reports) => "../".to_owned(),
        _ => address(reports) + "/",
    };
    let mut pages = BTreeMap::new();
    for link in profile_links(reports) {
        for case_id in link.case_ids {
            let page = format!("{to_reports}{}#{}", link.page, encoded(&case_id));
            pages.entry((link.host_id.clone(), case_id)).or_insert(page);
        }
    }
    pages
}

/// The absolute path of a file as an address: `/C:/reports` for `C:\reports` on Windows.
pub(in super::super) fn address(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    // The colon of a drive stays.
    let part = |part: &str| encoded(part).replace("%3A", ":");
    let address = path.display().to_string().split(MAIN_SEPARATOR).map(part).collect::<Vec<_>>().join("/");
    if address.starts_with('/') { address } else { format!("/{address}") }
}

/// A name as a part of an address.
pub(in super::super) fn encoded(name: &str) -> String {
    let byte = |byte: u8| match byte {
        b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'.' | b'_' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    name.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_linked_to_its_newest_profile() {
        let reports = tempfile::tempdir().unwrap();
        let write = |id: &str, file: &str, text: &str| {
            let folder = reports.path().join(PROFILES).join(id);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(file), text).unwrap();
        };
        for (id, cases) in [
            ("20260101T000000Z-h", r#"[{"case_id":"m/ort-cpu-f32/1"},{"case_id":"n"}]"#),
            ("20260102T000000Z h", r#"[{"case_id":"n"}]"#),
        ] {
            write(id, DATA, &format!("{{\"host_id\":\"h\",\"cases\":{cases}}}"));
            write(id, PAGE, "");
        }
        write("20260103T000000Z-h", DATA, r#"{"cases":[{"case_id":"n"}]}"#);
        write("20260104T000000Z-h", PAGE, "");
        let links = profile_links(reports.path());
        let pages: Vec<&str> = links.iter().map(|link| link.page.as_str()).collect();
        assert_eq!(pages, ["profiles/20260102T000000Z%20h/profile.html", "profiles/20260101T000000Z-h/profile.html"]);
        let expected = [
            ("m/ort-cpu-f32/1", "../profiles/20260101T000000Z-h/profile.html#m%2Fort-cpu-f32%2F1"),
            ("n", "../profiles/20260102T000000Z%20h/profile.html#n"),
        ];
        let of_run = newest_pages(reports.path(), &reports.path().join("run"));
        assert_eq!(of_run, expected.map(|(case, page)| (("h".to_owned(), case.to_owned()), page.to_owned())).into());
        assert!(
            newest_pages(reports.path(), reports.path())[&("h".to_owned(), "n".to_owned())].starts_with("profiles/")
        );
        assert!(profile_links(&reports.path().join("nowhere")).is_empty());
        match cfg!(windows) {
            true => assert_eq!(address(Path::new("C:\\a b\\#1\\50%\\c")), "/C:/a%20b/%231/50%25/c"),
            false => assert_eq!(address(Path::new("/a b/#1/50%/c")), "/a%20b/%231/50%25/c"),
        }
    }
}
