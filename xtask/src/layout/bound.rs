//! Parses bindgen's output: the C types with their fields, and the constants.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use proc_macro2::{TokenStream, TokenTree};

use crate::headers::HeaderSet;

#[derive(Debug, Default)]
pub(super) struct Bound {
    pub(super) types: Vec<Type>,
    pub(super) constants: Vec<Constant>,
}

#[derive(Debug)]
pub(super) struct Type {
    /// The name in Rust, which reports use.
    pub(super) name: String,
    /// The name in C. It differs if Rust has a type twice, in an older and a newer layout.
    pub(super) c_name: String,
    pub(super) is_union: bool,
    pub(super) fields: Vec<Field>,
    /// The only headers that have it; `None` if all have.
    pub(super) only: Option<HeaderSet>,
}

#[derive(Debug)]
pub(super) struct Constant {
    pub(super) name: String,
    pub(super) only: Option<HeaderSet>,
}

#[derive(Debug)]
pub(super) struct Field {
    /// The path in C after the type: `wr.rdma.remote_addr`. A member without a name adds nothing to
    /// it.
    pub(super) path: String,
    /// The path in Rust: each step is a field of a type, because bindgen makes a type of each
    /// unnamed member.
    pub(super) steps: Vec<Step>,
    /// A flexible array member has an offset and no width.
    pub(super) has_width: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) of: String,
    pub(super) field: String,
}

impl Bound {
    pub(super) fn parse(bindings: &str) -> Result<Self> {
        let file = syn::parse_file(bindings).context("the bindings cannot be parsed as Rust")?;
        let records = Records::of(&file);
        let mut types = Vec::new();
        for (name, record) in &records.by_name {
            if !is_unnamed(name) && record.is_complete() {
                let mut fields = Vec::new();
                records.flatten(name, "", &[], &mut fields);
                types.push(Type {
                    name: name.clone(),
                    c_name: name.clone(),
                    is_union: record.is_union,
                    fields,
                    only: None,
                });
            }
        }
        let constants = file.items.iter().filter_map(integer_constant);
        Ok(Self { types, constants: constants.map(|name| Constant { name, only: None }).collect() })
    }

    /// Adds a file written by hand: plain constants, and the `NAME = value` in the table of a
    /// macro. If no generated constant has the first word of a name, the name is the crate's own
    /// and unknown to C.
    pub(super) fn add_constants(&mut self, source: &str, only: Option<HeaderSet>) -> Result<()> {
        let file = syn::parse_file(source).context("the constants cannot be parsed as Rust")?;
        let mut names = BTreeSet::new();
        for item in &file.items {
            names.extend(integer_constant(item));
            match item {
                // The definition of the macro has a name; its use has none.
                syn::Item::Macro(call) if call.ident.is_none() => {
                    assigned_constants(call.mac.tokens.clone(), &mut names);
                }
                _ => {}
            }
        }
        let first_word = |name: &str| name.split('_').next().unwrap_or_default().to_owned();
        let words: BTreeSet<String> =
            self.constants.iter().map(|constant| first_word(&constant.name)).collect();
        names.retain(|name| words.contains(&first_word(name)));
        self.constants.extend(names.into_iter().map(|name| Constant { name, only }));
        Ok(())
    }

    /// Adds a file written by hand for newer headers: its constants, and structures that grew. Such
    /// a structure is called `name_2`, and its first field, `base`, is the older one.
    pub(super) fn add_later(&mut self, source: &str, set: HeaderSet) -> Result<()> {
        self.add_constants(source, Some(set))?;
        let mut later = Self::parse(source)?.types;
        for ty in &mut later {
            ty.c_name = ty.name.trim_end_matches("_2").to_owned();
            ty.fields.retain(|field| field.path != "base");
            ty.only = Some(set);
        }
        self.types.extend(later);
        Ok(())
    }
}

/// The structs and unions of the file, including those that bindgen made for unnamed members.
struct Records<'a> {
    by_name: BTreeMap<String, Record<'a>>,
}

struct Record<'a> {
    is_union: bool,
    fields: Vec<(String, &'a syn::Type)>,
}

impl Record<'_> {
    /// Returns whether the type has fields. Incomplete, empty and opaque types have none.
    fn is_complete(&self) -> bool {
        let placeholders = ["_unused", "_address", "_bindgen_opaque_blob"];
        !self.fields.is_empty() && !self.fields.iter().any(|(name, _)| placeholders.contains(&name.as_str()))
    }
}

impl<'a> Records<'a> {
    fn of(file: &'a syn::File) -> Self {
        let mut by_name = BTreeMap::new();
        for item in &file.items {
            let (ident, generics, fields, is_union) = match item {
                syn::Item::Struct(item) => match &item.fields {
                    syn::Fields::Named(fields) => (&item.ident, &item.generics, fields, false),
                    _ => continue,
                },
                syn::Item::Union(item) => (&item.ident, &item.generics, &item.fields, true),
                _ => continue,
            };
            // bindgen's helpers are generic; C has no generic types.
            if generics.params.is_empty() {
                let fields = fields
                    .named
                    .iter()
                    .filter_map(|field| Some((field.ident.as_ref()?.to_string(), &field.ty)));
                by_name.insert(ident.to_string(), Record { is_union, fields: fields.collect() });
            }
        }
        Self { by_name }
    }

    /// Appends the fields of `of`, reached by `steps` and called `prefix` in C, and those of its
    /// unnamed members.
    fn flatten(&self, of: &str, prefix: &str, steps: &[Step], found: &mut Vec<Field>) {
        let Some(record) = self.by_name.get(of) else { return };
        for (field, ty) in record.fields.iter().filter(|(field, _)| !is_filler(field)) {
            let mut steps = steps.to_vec();
            steps.push(Step { of: of.to_owned(), field: field.clone() });
            let inner = type_name(ty);
            let path =
                if is_unnamed_member(field) { prefix.to_owned() } else { join(prefix, &c_name(field)) };
            if !is_unnamed_member(field) {
                let has_width = inner.as_deref() != Some("__IncompleteArrayField");
                found.push(Field { path: path.clone(), steps: steps.clone(), has_width });
            }
            if let Some(inner) = inner.filter(|inner| is_unnamed(inner)) {
                self.flatten(&inner, &path, &steps, found);
            }
        }
    }
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
}

/// Returns whether bindgen chose the name of the type, because it has none in C.
fn is_unnamed(ty: &str) -> bool {
    ty.contains("_bindgen_ty_")
}

fn is_unnamed_member(field: &str) -> bool {
    field.starts_with("__bindgen_anon_")
}

/// Returns whether a field is a bit-field, which has no offset in C, or bindgen's padding.
fn is_filler(field: &str) -> bool {
    field.starts_with("_bitfield_")
        || field.starts_with("__bindgen_padding_")
        || field.starts_with("_phantom_")
}

/// Returns C's name of a field whose name is a keyword of Rust: bindgen appends `_`.
fn c_name(field: &str) -> String {
    match field.strip_suffix('_') {
        Some(stem) if syn::parse_str::<syn::Ident>(stem).is_err() && !stem.is_empty() => stem.to_owned(),
        _ => field.to_owned(),
    }
}

/// Returns the last name of a path; that of the inner type for `ManuallyDrop`.
fn type_name(ty: &syn::Type) -> Option<String> {
    let syn::Type::Path(path) = ty else { return None };
    let last = path.path.segments.last()?;
    match &last.arguments {
        syn::PathArguments::AngleBracketed(arguments) if last.ident == "ManuallyDrop" => {
            arguments.args.iter().find_map(|argument| match argument {
                syn::GenericArgument::Type(inner) => type_name(inner),
                _ => None,
            })
        }
        _ => Some(last.ident.to_string()),
    }
}

/// Returns the name of a public constant whose type is a plain name: an integer, or the alias of an
/// enumeration.
fn integer_constant(item: &syn::Item) -> Option<String> {
    match item {
        syn::Item::Const(item) if matches!(item.vis, syn::Visibility::Public(_)) => {
            matches!(*item.ty, syn::Type::Path(_)).then(|| item.ident.to_string())
        }
        _ => None,
    }
}

/// Collects `NAME =`, at any depth.
fn assigned_constants(tokens: TokenStream, found: &mut BTreeSet<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (index, token) in tokens.iter().enumerate() {
        match (token, tokens.get(index + 1)) {
            (TokenTree::Ident(name), Some(TokenTree::Punct(next))) if next.as_char() == '=' => {
                found.insert(name.to_string());
            }
            // An attribute, such as a doc comment, contains an assignment too.
            (TokenTree::Group(group), _) if group.delimiter() != proc_macro2::Delimiter::Bracket => {
                assigned_constants(group.stream(), found);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BINDINGS: &str = "
        #[repr(C)] pub struct __IncompleteArrayField<T>(PhantomData<T>, [T; 0]);
        #[repr(C)] pub struct hidden { _unused: [u8; 0] }
        #[repr(C)] pub struct wr {
            pub type_: u32,
            pub __bindgen_anon_1: wr__bindgen_ty_1,
            pub wr: wr__bindgen_ty_2,
            pub peer: *mut hidden,
            pub _bitfield_1: __BindgenBitfieldUnit<[u8; 1usize]>,
            pub tail: __IncompleteArrayField<u8>,
        }
        #[repr(C)] pub union wr__bindgen_ty_1 { pub imm_data: u32, pub invalidate_rkey: u32 }
        #[repr(C)] pub union wr__bindgen_ty_2 {
            pub rdma: ManuallyDrop<wr__bindgen_ty_2__bindgen_ty_1>,
            pub __bindgen_anon_1: wr__bindgen_ty_2__bindgen_ty_2,
        }
        #[repr(C)] pub struct wr__bindgen_ty_2__bindgen_ty_1 { pub remote_addr: u64 }
        #[repr(C)] pub struct wr__bindgen_ty_2__bindgen_ty_2 { pub swap: u64 }
        #[repr(C)] pub union gid { pub raw: [u8; 16usize] }
        pub const RC: qp_type = 2;
        pub const NAME: &CStr = c\"x\";
        const PRIVATE: u32 = 1;
    ";

    #[test]
    fn unnamed_members_are_flattened_into_the_c_path() {
        let bound = Bound::parse(BINDINGS).unwrap();
        let names: Vec<(&str, bool)> = bound.types.iter().map(|ty| (ty.name.as_str(), ty.is_union)).collect();
        assert_eq!(names, [("gid", true), ("wr", false)]);
        let paths: Vec<&str> = bound.types[1].fields.iter().map(|field| field.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "type",
                "imm_data",
                "invalidate_rkey",
                "wr",
                "wr.rdma",
                "wr.rdma.remote_addr",
                "wr.swap",
                "peer",
                "tail",
            ]
        );
        let steps: Vec<String> =
            bound.types[1].fields[5].steps.iter().map(|step| format!("{}.{}", step.of, step.field)).collect();
        assert_eq!(steps, ["wr.wr", "wr__bindgen_ty_2.rdma", "wr__bindgen_ty_2__bindgen_ty_1.remote_addr"]);
        assert!(!bound.types[1].fields[8].has_width);
    }

    #[test]
    fn constants_are_public_and_numbers() {
        let mut bound = Bound::parse(BINDINGS).unwrap();
        bound
            .add_constants(
                "macro_rules! m { ($a:ident) => { X = 1 } }
                 /// Documented.
                 pub const RC_FLAG: u64 = 1 << 3;
                 pub const OWN: u64 = 1;
                 m! { TABLE; /// Documented.
                 u64 { RC_ONE = 1, RC_TWO = RC_ONE << 1, } }",
                None,
            )
            .unwrap();
        let names: Vec<&str> = bound.constants.iter().map(|constant| constant.name.as_str()).collect();
        assert_eq!(names, ["RC", "RC_FLAG", "RC_ONE", "RC_TWO"]);
    }

    #[test]
    fn a_structure_that_grew_is_asked_of_the_newer_headers_alone() {
        let mut bound = Bound::parse(BINDINGS).unwrap();
        let source = "pub struct gid_2 { pub base: gid, pub scope: u32 }\npub const RC_NEW: u32 = 9;";
        bound.add_later(source, HeaderSet::Newest).unwrap();
        let grown = bound.types.last().unwrap();
        assert_eq!((grown.name.as_str(), grown.c_name.as_str()), ("gid_2", "gid"));
        assert_eq!(grown.only, Some(HeaderSet::Newest));
        assert_eq!(grown.fields.iter().map(|field| field.path.as_str()).collect::<Vec<_>>(), ["scope"]);
        assert_eq!(bound.constants.last().unwrap().only, Some(HeaderSet::Newest));
    }
}
