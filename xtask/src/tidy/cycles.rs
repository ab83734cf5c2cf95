//! Files of one crate that depend on each other in a cycle.
//!
//! A file depends on the file that defines an item it names. A name that is re-exported on the way leads to the file that defines it, so a module that
//! declares its children and re-exports their items depends on none of them. It does as soon as its own code names such an item. A module may name
//! what the modules around it define: a parent with its children is one thing, and the parent's dependencies on them are the ones that count. Tests do
//! not count, and calls of methods are not seen.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Finding;
use super::names::{Name, names, plain};
use super::reach::{Place, module_files, roots};
use super::tree::Tree;

/// Cycles that stay, with the reason. All files of a cycle have to be listed in one line.
const EXCEPTIONS: &[Exception] = &[
    Exception {
        files: &[
            "crates/engine/src/grant.rs",
            "crates/engine/src/peer.rs",
            "crates/engine/src/publication.rs",
        ],
        reason: "a peer makes grants and opens publications, which are revoked through or for a peer",
    },
    Exception {
        files: &[
            "crates/fabric/src/av.rs",
            "crates/fabric/src/cq/completion.rs",
            "crates/fabric/src/cq/mod.rs",
            "crates/fabric/src/cq/poller.rs",
            "crates/fabric/src/cq/registry.rs",
            "crates/fabric/src/domain.rs",
            "crates/fabric/src/ep/atomics.rs",
            "crates/fabric/src/ep/mod.rs",
            "crates/fabric/src/ep/slots.rs",
            "crates/fabric/src/exposed_key.rs",
            "crates/fabric/src/fabric.rs",
            "crates/fabric/src/handle.rs",
            "crates/fabric/src/mr.rs",
        ],
        reason: "each object keeps its parents open, and `handle.rs` holds the calls on all of them, where their safety is argued",
    },
    Exception {
        files: &["crates/fabric/src/library.rs", "crates/fabric/src/raw.rs"],
        reason: "a library asks for its version and its texts by raw calls, and raw calls return errors with its texts",
    },
    Exception {
        files: &[
            "crates/memory/src/exposed.rs",
            "crates/memory/src/key_guard.rs",
            "crates/memory/src/lent.rs",
            "crates/memory/src/memory.rs",
            "crates/memory/src/options.rs",
            "crates/memory/src/range.rs",
            "crates/memory/src/shared.rs",
            "crates/memory/src/slice.rs",
        ],
        reason: "each kind of access to a range turns into the others, and all rely on one invariant: no two ranges overlap",
    },
    Exception {
        files: &[
            "crates/verbs/src/ah.rs",
            "crates/verbs/src/attributes.rs",
            "crates/verbs/src/context.rs",
            "crates/verbs/src/device.rs",
            "crates/verbs/src/error.rs",
            "crates/verbs/src/gid.rs",
            "crates/verbs/src/limits.rs",
            "crates/verbs/src/pd.rs",
            "crates/verbs/src/port.rs",
            "crates/verbs/src/qp/attributes.rs",
            "crates/verbs/src/qp/state.rs",
        ],
        reason: "an error is defined beside the operation that it is of, and the error of the crate holds it",
    },
    Exception {
        files: &[
            "crates/verbs/src/cm/channel.rs",
            "crates/verbs/src/cm/connection.rs",
            "crates/verbs/src/cm/event.rs",
            "crates/verbs/src/cm/handle/channel.rs",
            "crates/verbs/src/cm/handle/event.rs",
            "crates/verbs/src/cm/handle/id.rs",
            "crates/verbs/src/cm/id.rs",
            "crates/verbs/src/cm/listener.rs",
            "crates/verbs/src/cm/resolution.rs",
            "crates/verbs/src/cm/thread.rs",
        ],
        reason: "identifiers, their events and their channel name each other, as in librdmacm",
    },
    Exception {
        files: &[
            "crates/verbs/src/cq/completion.rs",
            "crates/verbs/src/cq/mod.rs",
            "crates/verbs/src/cq/poller.rs",
            "crates/verbs/src/cq/registry.rs",
            "crates/verbs/src/mw.rs",
            "crates/verbs/src/qp/mod.rs",
            "crates/verbs/src/qp/queue.rs",
            "crates/verbs/src/srq.rs",
            "crates/verbs/src/wr/send.rs",
            "crates/verbs/src/xrc.rs",
        ],
        reason: "a completion leads to its queue pair, a queue pair to its completion queues, windows and XRC domains to both",
    },
    Exception {
        files: &[
            "crates/verbs/src/dm.rs",
            "crates/verbs/src/handle/pd.rs",
            "crates/verbs/src/mr.rs",
            "crates/verbs/src/wr/remote.rs",
        ],
        reason: "a region of on-chip memory keeps the memory, and on-chip memory makes regions",
    },
];

struct Exception {
    files: &'static [&'static str],
    reason: &'static str,
}

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    check_with(tree, EXCEPTIONS)
}

fn check_with(tree: &Tree, exceptions: &[Exception]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut used = BTreeSet::new();
    for root in roots(tree) {
        let Some(modules) = Modules::of(tree, &root) else { continue };
        let graph = modules.graph();
        for cycle in graph.cycles() {
            let excuse = exceptions
                .iter()
                .position(|exception| cycle.iter().all(|file| exception.files.contains(file)));
            match excuse {
                Some(index) => {
                    used.insert(index);
                }
                None => findings.push(graph.finding(&cycle)),
            }
        }
    }
    for (index, exception) in exceptions.iter().enumerate() {
        // A tree without these files, in a test, has no cycle to excuse.
        if !used.contains(&index) && tree.get(exception.files[0]).is_some() {
            let message = format!(
                "no cycle of {} is left ({}): remove the exception",
                exception.files.join(", "),
                exception.reason
            );
            findings.push(Finding::new("xtask/src/tidy/cycles.rs", 1, message));
        }
    }
    findings
}

/// The modules of one crate, by their path from its root.
struct Modules {
    by_path: BTreeMap<Vec<String>, Module>,
}

/// The modules in which a name was looked for.
type Seen = BTreeSet<(Vec<String>, String)>;

#[derive(Default)]
struct Module {
    file: String,
    items: BTreeSet<String>,
    /// What a `use` binds to a name here.
    bindings: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    /// What the module's own code names, private imports included.
    names: Vec<Name>,
}

impl Modules {
    fn of(tree: &Tree, root: &str) -> Option<Self> {
        tree.get(root)?;
        let mut modules = Self { by_path: BTreeMap::new() };
        let mut waiting = vec![(Vec::new(), root.to_owned())];
        while let Some((path, file)) = waiting.pop() {
            let Some(syntax) =
                tree.get(&file).filter(|file| !file.is_generated()).and_then(|file| file.syntax())
            else {
                continue;
            };
            modules.add(&path, &file, &syntax.items, &Place::of(&file), &mut waiting);
        }
        Some(modules)
    }

    fn add(
        &mut self,
        path: &[String],
        file: &str,
        items: &[syn::Item],
        place: &Place,
        waiting: &mut Vec<(Vec<String>, String)>,
    ) {
        let mut module = Module { file: file.to_owned(), ..Module::default() };
        for item in items.iter().filter(|item| !is_of_tests(item)) {
            match item {
                syn::Item::Mod(child) => {
                    let path = [path, &[plain(&child.ident)]].concat();
                    if let Some((_, items)) = &child.content {
                        self.add(&path, file, items, &place.inside(child), waiting);
                    } else {
                        waiting
                            .extend(module_files(child, place).into_iter().map(|file| (path.clone(), file)));
                    }
                }
                syn::Item::Use(import) => module.import(import),
                item => {
                    module.items.extend(name_of(item));
                    module.visit_item(item);
                }
            }
        }
        self.by_path.insert(path.to_vec(), module);
    }

    /// The file that defines what `name` leads to, seen from the module `from`. None for a module, and for what is of no module of this crate.
    fn defining_file(&self, from: &[String], name: &[String]) -> Option<&str> {
        self.follow(from, name, &mut BTreeSet::new())
    }

    fn follow(&self, from: &[String], name: &[String], seen: &mut Seen) -> Option<&str> {
        let (mut at, mut rest) = (from, name);
        match rest.first()?.as_str() {
            "crate" => (at, rest) = (&[], &rest[1..]),
            "self" => rest = &rest[1..],
            // Otherwise the first segment is of this module, or of another crate.
            _ => {}
        }
        while rest.first().is_some_and(|segment| segment == "super") {
            (at, rest) = (at.split_last()?.1, &rest[1..]);
        }
        self.inside(at, rest, seen)
    }

    /// The same for a name that begins in the module `at`.
    fn inside(&self, at: &[String], name: &[String], seen: &mut Seen) -> Option<&str> {
        let module = self.by_path.get(at)?;
        let (first, rest) = name.split_first()?;
        let child = [at, std::slice::from_ref(first)].concat();
        if self.by_path.contains_key(&child) {
            return self.inside(&child, rest, seen);
        }
        if module.items.contains(first) {
            return Some(&module.file);
        }
        // Modules may import all of each other, so a name is looked for in each once.
        if !seen.insert((at.to_vec(), first.clone())) {
            return None;
        }
        if let Some(target) = module.bindings.get(first) {
            return self.follow(at, &[target.as_slice(), rest].concat(), seen);
        }
        module.globs.iter().find_map(|glob| self.follow(at, &[glob.as_slice(), name].concat(), seen))
    }

    /// Whether this file holds a module around the module `path`.
    fn is_around(&self, path: &[String], file: &str) -> bool {
        (0..path.len()).any(|len| self.by_path.get(&path[..len]).is_some_and(|module| module.file == file))
    }

    fn graph(&self) -> Graph<'_> {
        let mut graph = Graph::default();
        for (path, module) in &self.by_path {
            for name in &module.names {
                let Some(target) = self.defining_file(path, &name.segments) else { continue };
                if target != module.file && !self.is_around(path, target) {
                    graph.edges.entry(&module.file).or_default().entry(target).or_insert(name);
                }
            }
        }
        graph
    }
}

impl Module {
    fn import(&mut self, import: &syn::ItemUse) {
        for (path, bound) in flattened(import) {
            match bound {
                Some(bound) => {
                    self.bindings.insert(bound, path.clone());
                }
                None => self.globs.push(path.clone()),
            }
            // What is handed on is a use only where the module's own code names it.
            if matches!(import.vis, syn::Visibility::Inherited) {
                self.name(path, import.span());
            }
        }
    }

    fn name(&mut self, segments: Vec<String>, at: Span) {
        self.names.push(Name { segments, line: at.start().line });
    }
}

impl<'ast> Visit<'ast> for Module {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.name(path.segments.iter().map(|segment| plain(&segment.ident)).collect(), path.span());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.names.extend(names(call.tokens.clone()));
        visit::visit_macro(self, call);
    }

    fn visit_item_use(&mut self, import: &'ast syn::ItemUse) {
        for (path, _) in flattened(import) {
            self.name(path, import.span());
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !has_cfg_test(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }
}

fn flattened(import: &syn::ItemUse) -> Vec<(Vec<String>, Option<String>)> {
    let mut found = Vec::new();
    flatten(&import.tree, &mut Vec::new(), &mut found);
    found
}

/// Each path of a `use`, with the name that it binds; none for `*`.
fn flatten(tree: &syn::UseTree, prefix: &mut Vec<String>, found: &mut Vec<(Vec<String>, Option<String>)>) {
    match tree {
        syn::UseTree::Path(path) => {
            prefix.push(plain(&path.ident));
            flatten(&path.tree, prefix, found);
            prefix.pop();
        }
        syn::UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, prefix, found);
            }
        }
        syn::UseTree::Glob(_) => found.push((prefix.clone(), None)),
        syn::UseTree::Name(name) if name.ident == "self" => {
            found.push((prefix.clone(), prefix.last().cloned()));
        }
        syn::UseTree::Name(name) => {
            let name = plain(&name.ident);
            found.push(([prefix.as_slice(), std::slice::from_ref(&name)].concat(), Some(name)));
        }
        syn::UseTree::Rename(rename) => {
            let mut path = prefix.clone();
            if rename.ident != "self" {
                path.push(plain(&rename.ident));
            }
            found.push((path, Some(plain(&rename.rename))));
        }
    }
}

fn is_of_tests(item: &syn::Item) -> bool {
    has_cfg_test(match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => return false,
    })
}

fn has_cfg_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string().replace(' ', "");
            // With a feature, another program runs the test's code, too.
            condition == "test" || condition.starts_with("all(test,") || condition.starts_with("any(test,")
        }
        _ => false,
    })
}

fn name_of(item: &syn::Item) -> Option<String> {
    Some(plain(match item {
        syn::Item::Const(item) => &item.ident,
        syn::Item::Enum(item) => &item.ident,
        syn::Item::Fn(item) => &item.sig.ident,
        syn::Item::Macro(item) => item.ident.as_ref()?,
        syn::Item::Static(item) => &item.ident,
        syn::Item::Struct(item) => &item.ident,
        syn::Item::Trait(item) => &item.ident,
        syn::Item::Type(item) => &item.ident,
        syn::Item::Union(item) => &item.ident,
        _ => return None,
    }))
}

/// Which file names an item of which other, with the first such name.
#[derive(Default)]
struct Graph<'a> {
    edges: BTreeMap<&'a str, BTreeMap<&'a str, &'a Name>>,
}

impl<'a> Graph<'a> {
    /// The strongly connected components of more than one file, each in the order of its paths.
    fn cycles(&self) -> BTreeSet<Vec<&'a str>> {
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            self.edges.keys().map(|file| (*file, self.reached_from(file))).collect();
        let mutual = |file: &'a str| -> Vec<&'a str> {
            let others = reached[file].iter().copied();
            others.filter(|other| reached.get(other).is_some_and(|back| back.contains(file))).collect()
        };
        self.edges.keys().map(|file| mutual(file)).filter(|cycle| cycle.len() > 1).collect()
    }

    fn reached_from(&self, file: &str) -> BTreeSet<&'a str> {
        let mut reached = BTreeSet::new();
        let mut waiting = vec![file];
        while let Some(file) = waiting.pop() {
            for next in self.edges.get(file).into_iter().flatten().map(|(next, _)| *next) {
                if reached.insert(next) {
                    waiting.push(next);
                }
            }
        }
        reached
    }

    fn finding(&self, cycle: &[&str]) -> Finding {
        let mut ties = Vec::new();
        for from in cycle {
            for (to, name) in self.edges[from].iter().filter(|(to, _)| cycle.contains(to)) {
                ties.push(format!("{from}:{} names `{}` of {to}", name.line, name.display()));
            }
        }
        let first = self.edges[cycle[0]].iter().find(|(to, _)| cycle.contains(to));
        let line = first.map_or(1, |(_, name)| name.line);
        let message = format!(
            "{} files depend on each other in a cycle: move what both sides need to where both may look\n  {}",
            cycle.len(),
            ties.join("\n  ")
        );
        Finding::new(cycle[0], line, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CYCLE: &[(&str, &str)] = &[
        ("crates/x/Cargo.toml", ""),
        ("crates/x/src/lib.rs", "mod a;\nmod b;\n"),
        ("crates/x/src/a.rs", "use crate::b::B;\npub struct A(B);\n"),
        ("crates/x/src/b.rs", "pub struct B;\nfn f(a: super::a::A) {}\n"),
    ];

    #[test]
    fn a_finding_names_each_tie_of_the_cycle() {
        let findings = check_with(&Tree::of(CYCLE), &[]);
        let [finding] = &findings[..] else { panic!("{findings:?}") };
        assert!(finding.message.starts_with("2 files depend on each other"), "{}", finding.message);
        for tie in [
            "crates/x/src/a.rs:1 names `crate::b::B` of crates/x/src/b.rs",
            "crates/x/src/b.rs:2 names `super::a::A` of crates/x/src/a.rs",
        ] {
            assert!(finding.message.contains(tie), "{}", finding.message);
        }
    }

    #[test]
    fn an_exception_excuses_cycles_of_its_files_and_must_not_be_stale() {
        let both = Exception { files: &["crates/x/src/a.rs", "crates/x/src/b.rs"], reason: "one thing" };
        let one = Exception { files: &["crates/x/src/a.rs"], reason: "one thing" };
        assert!(check_with(&Tree::of(CYCLE), &[both]).is_empty());
        assert_eq!(check_with(&Tree::of(CYCLE), &[one]).len(), 2, "the cycle, and the exception");
    }
}
