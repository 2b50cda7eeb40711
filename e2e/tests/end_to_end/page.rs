//! The page, in a real browser: what `e2e/page/page.test.mjs` and its neighbours do with it. Pictures of it are kept in
//! `target/e2e/page/pictures`.

mod code;
pub(crate) mod live;
pub(crate) mod profiles;

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::{many_stacks, paths, requirement, sidewinder};
use sidewinder_render::{NameStyle, Profile, ProfileFormat, write, write_page};

/// Where the pages are written.
pub(crate) fn folder() -> Result<PathBuf> {
    let folder = paths::compiled()?.join("page");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

pub(crate) fn write_form(name: &str, profile: &Profile) -> Result<()> {
    let path = folder()?.join(name);
    let mut out = BufWriter::new(File::create(&path).with_context(|| format!("{}", path.display()))?);
    write(profile, ProfileFormat::from_path(&path, &[])?, NameStyle::Short, &mut out)?;
    Ok(())
}

/// Runs one of the judges in `e2e/page` on what is in the folder; `false` where something for it is missing.
pub(crate) fn judge(test: &str, judge: &str) -> Result<bool> {
    judge_with(test, judge, &[])
}

/// The same, with variables in its environment.
fn judge_with(test: &str, judge: &str, variables: &[(&str, String)]) -> Result<bool> {
    let folder_of_judges = paths::e2e().join("page");
    if !requirement::packages(test, &folder_of_judges)? || !requirement::program(test, "chromium")? {
        return Ok(false);
    }
    let ended = Command::new("node")
        // A browser that a failing test leaves open keeps nobody waiting.
        .args(["--test", "--test-reporter=spec", "--test-force-exit", judge])
        .current_dir(&folder_of_judges)
        .env("PAGES", folder()?)
        .envs(variables.iter().map(|(name, value)| (*name, value)))
        .status()?;
    ensure!(ended.success(), "{judge} finds something wrong: see above");
    Ok(true)
}

#[promise(Page, test_all)]
fn people_can_use_it() -> Result<()> {
    write_form("server.html", &profiles::server())?;
    write_form("two.html", &profiles::two())?;
    write_form("deep.html", &profiles::deep())?;
    write_form("hostile.html", &profiles::hostile())?;
    write_form("inlined.html", &profiles::inlined())?;
    write_several()?;
    write_large()?;
    judge("people_can_use_it", "page.test.mjs").map(drop)
}

/// The page of three types of profile of the server.
fn write_several() -> Result<()> {
    let mut out = BufWriter::new(File::create(folder()?.join("several.html"))?);
    Ok(write_page(&[profiles::server(), profiles::off_cpu(), profiles::wall()], NameStyle::Short, &mut out)?)
}

/// The page of a profile of 100,000 stacks.
fn write_large() -> Result<()> {
    let [input, page] = ["large.otlp", "large.html"].map(|name| folder().map(|folder| folder.join(name)));
    let (input, page) = (input?, page?);
    fs::write(&input, many_stacks::report()?.as_bytes())?;
    let ended = sidewinder::run(&["view".as_ref(), "-o".as_ref(), page.as_os_str(), input.as_os_str()])?;
    ensure!(ended.status.success(), "{}", ended.log);
    Ok(())
}

/// Short names, the call tree, and what can be done to it.
#[promise(Page, test_all)]
fn names_are_short_and_trees_can_be_changed() -> Result<()> {
    write_form("languages.html", &profiles::languages())?;
    judge("names_are_short_and_trees_can_be_changed", "tree.test.mjs").map(drop)
}

#[promise(Page)]
fn it_shows_each_kind_of_profile_in_its_unit() -> Result<()> {
    write_form("faults.html", &profiles::faults())?;
    write_form("off_cpu.html", &profiles::off_cpu())?;
    write_form("wall.html", &profiles::wall())?;
    write_form("probe.html", &profiles::probe())?;
    write_form("delay.html", &profiles::lock_delay())?;
    write_form("contentions.html", &profiles::lock_contentions())?;
    judge("it_shows_each_kind_of_profile_in_its_unit", "kinds.test.mjs").map(drop)
}

/// What is in the repository is what its sources make, byte by byte.
#[promise(Page)]
fn it_is_as_built() -> Result<()> {
    let sources = paths::repository().join("receiver/page");
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
