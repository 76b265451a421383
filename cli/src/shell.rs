//! `cronbox completions` and `cronbox man`: what a shell and a manual need of the commands.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use clap_complete::Shell;

use crate::print::print_text;

/// A shell.
#[derive(Args)]
pub(crate) struct Completions {
    /// The shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// A folder of manual pages.
#[derive(Args)]
pub(crate) struct Man {
    /// The folder; one page is written for each command.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// Prints the completions of a shell: source them, or put them where the shell looks for them.
pub(crate) fn print_completions(completions: &Completions, mut command: clap::Command) -> anyhow::Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(completions.shell, &mut command, "cronbox", &mut text);
    io::Write::write_all(&mut io::stdout().lock(), &text).or_else(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the manual pages, `cronbox-run-ls.1` and so on.
pub(crate) fn write_man_pages(man: &Man, command: clap::Command) -> anyhow::Result<ExitCode> {
    fs::create_dir_all(&man.folder).with_context(|| format!("cannot create {}", man.folder.display()))?;
    let mut command = command;
    command.build();
    let pages = write_pages(&man.folder, &command, "cronbox")?;
    print_text(&format!("{pages} pages are in {}\n", man.folder.display()))
}

fn write_pages(folder: &Path, command: &clap::Command, name: &str) -> anyhow::Result<usize> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).title(name).render(&mut text)?;
    let file = folder.join(format!("{name}.1"));
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    let mut pages = 1;
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        pages += write_pages(folder, below, &format!("{name}-{}", below.get_name()))?;
    }
    Ok(pages)
}
