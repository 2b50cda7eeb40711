//! The page, in a real browser: what `e2e/page/page.test.mjs` does with it. Pictures of it are kept in
//! `target/e2e/page/pictures`.

mod profiles;

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use sidewinder_e2e::{paths, requirement};
use sidewinder_render::{Form, Profile, write};

/// Where the pages are written.
fn folder() -> Result<PathBuf> {
    let folder = paths::compiled()?.join("page");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn write_page(name: &str, profile: &Profile) -> Result<()> {
    let path = folder()?.join(name);
    let mut out = BufWriter::new(File::create(&path).with_context(|| format!("{}", path.display()))?);
    write(profile, Form::Html, &mut out)?;
    Ok(())
}

#[test]
fn people_can_use_it() -> Result<()> {
    let judge = paths::e2e().join("page");
    if !requirement::packages("people_can_use_it", &judge)?
        || !requirement::program("people_can_use_it", "chromium")?
    {
        return Ok(());
    }
    write_page("server.html", &profiles::server())?;
    write_page("two.html", &profiles::two())?;
    write_page("hostile.html", &profiles::hostile())?;
    write_page("large.html", &profiles::large())?;
    let ended = Command::new("node")
        .args(["--test", "--test-reporter=spec", "page.test.mjs"])
        .current_dir(&judge)
        .env("PAGES", folder()?)
        .status()?;
    ensure!(ended.success(), "the page does not do what it should: see above");
    Ok(())
}

/// What is in the repository is what its sources make, byte by byte.
#[test]
fn it_is_as_built() -> Result<()> {
    let sources = paths::e2e().with_file_name("receiver/page");
    if !requirement::packages("it_is_as_built", &sources)? {
        return Ok(());
    }
    let built = folder()?.join("built.html");
    for (program, arguments) in
        [("node_modules/.bin/tsc", &[][..]), ("node", &["build.mjs".as_ref(), built.as_os_str()])]
    {
        let ended = Command::new(program).args(arguments).current_dir(&sources).status()?;
        ensure!(ended.success(), "{program} fails");
    }
    let is_same = fs::read(&built)? == fs::read(sources.join("page.html"))?;
    ensure!(
        is_same,
        "receiver/page/page.html is not what its sources make: run `npm run build` in receiver/page"
    );
    Ok(())
}
