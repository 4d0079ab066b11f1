//! A source file as tokens: its modules, its `use` declarations, and all paths in it.

use std::iter::Peekable;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// What a file or an inline module has, without what is under `#[cfg(test)]`.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// Every path of two or more names, with the line of its first name.
    pub(crate) paths: Vec<Path>,
    /// Names that `use` declarations bring in: the name, and the path that it stands for.
    pub(crate) imports: Vec<(String, Vec<String>)>,
    /// Names of modules that have a file of their own.
    pub(crate) files: Vec<String>,
    /// Modules that are written inline.
    pub(crate) inline: Vec<(String, Scan)>,
}

/// A path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) names: Vec<String>,
    pub(crate) line: usize,
}

type Tokens = Peekable<proc_macro2::token_stream::IntoIter>;

/// Reads the tokens of a file or of an inline module.
pub(crate) fn scan(tokens: TokenStream) -> Scan {
    let mut found = Scan::default();
    items(tokens, &mut found);
    found
}

/// The tokens of a module, of a body or of a macro.
fn items(tokens: TokenStream, found: &mut Scan) {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '#' => {
                let Some(TokenTree::Group(attribute)) = tokens.peek() else { continue };
                if is_for_tests(attribute) {
                    tokens.next();
                    skip_item(&mut tokens);
                }
            }
            TokenTree::Ident(ident) if ident == "mod" => module(&mut tokens, found),
            TokenTree::Ident(ident) if ident == "use" => import(&mut tokens, found),
            TokenTree::Ident(ident) => {
                let line = ident.span().start().line;
                let mut names = vec![ident.to_string()];
                while let Some(name) = next_name(&mut tokens) {
                    names.push(name);
                }
                if names.len() > 1 {
                    found.paths.push(Path { names, line });
                }
            }
            TokenTree::Group(group) => items(group.stream(), found),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// Whether an attribute is `#[cfg(test)]`, or a `cfg` of several conditions with `test` in it.
fn is_for_tests(attribute: &Group) -> bool {
    let mut tokens = attribute.stream().into_iter();
    let is_cfg = matches!(tokens.next(), Some(TokenTree::Ident(name)) if name == "cfg");
    let Some(TokenTree::Group(condition)) = tokens.next() else { return false };
    let names: Vec<String> =
        condition.stream().into_iter().map(|token| token.to_string()).collect();
    let of_all = names.first().is_some_and(|first| first == "test" || first == "all");
    is_cfg && of_all && condition.stream().to_string().contains("test")
}

/// Skips an item: up to a semicolon, or a body in braces.
fn skip_item(tokens: &mut Tokens) {
    for token in tokens.by_ref() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == ';' => return,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return,
            _ => {}
        }
    }
}

/// After `mod`.
fn module(tokens: &mut Tokens, found: &mut Scan) {
    let Some(TokenTree::Ident(name)) = tokens.next() else { return };
    match tokens.next() {
        Some(TokenTree::Group(body)) => found.inline.push((name.to_string(), scan(body.stream()))),
        _ => found.files.push(name.to_string()),
    }
}

/// After `use`.
fn import(tokens: &mut Tokens, found: &mut Scan) {
    let mut tree: Vec<TokenTree> = Vec::new();
    for token in tokens.by_ref() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == ';' => break,
            token => tree.push(token),
        }
    }
    branches(&tree, &[], found);
}

/// A part of a `use` tree, after the names before it.
fn branches(tree: &[TokenTree], before: &[String], found: &mut Scan) {
    // After the last comma there is nothing.
    let branches_of = tree.split(|token| is_punct(token, ','));
    for branch in branches_of.filter(|branch| !branch.is_empty()) {
        let mut names = before.to_vec();
        let (mut line, mut alias, mut has_alias) = (0, None, false);
        for token in branch {
            match token {
                TokenTree::Ident(ident) if *ident == "as" => has_alias = true,
                TokenTree::Ident(ident) if has_alias => alias = Some(ident.to_string()),
                TokenTree::Ident(ident) => {
                    line = ident.span().start().line;
                    names.push(ident.to_string());
                }
                TokenTree::Group(group) => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    branches(&inner, &names, found);
                    names.clear();
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
        // `a::{self, b}` stands for `a`.
        if names.len() > 1 && names.last().is_some_and(|name| name == "self") {
            names.pop();
        }
        let Some(last) = names.last() else { continue };
        found.imports.push((alias.unwrap_or_else(|| last.clone()), names.clone()));
        found.paths.push(Path { names, line });
    }
}

/// The name after `::`, if that is what follows.
fn next_name(tokens: &mut Tokens) -> Option<String> {
    let mut ahead = tokens.clone();
    let colons = ahead.next().is_some_and(|token| is_punct(&token, ':'))
        && ahead.next().is_some_and(|token| is_punct(&token, ':'));
    let Some(TokenTree::Ident(name)) = colons.then(|| ahead.next()).flatten() else { return None };
    *tokens = ahead;
    Some(name.to_string())
}

fn is_punct(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let found = scan(text.parse().expect("tokens"));
        found.paths.iter().map(|path| path.names.join("::")).collect()
    }

    #[test]
    fn paths_are_found_in_uses_bodies_types_and_macros() {
        let text =
            "use a::{b::{self, C as D}, e::*}; fn f(x: g::H) { k!(l::m(1), n); o::p::<q::R>() }";
        assert_eq!(names(text), ["a::b", "a::b::C", "a::e", "g::H", "l::m", "o::p", "q::R"]);
        let found = scan(text.parse().expect("tokens"));
        assert_eq!(found.imports[1], ("D".to_owned(), ["a", "b", "C"].map(String::from).to_vec()));
    }

    #[test]
    fn tests_are_left_out_and_modules_are_apart() {
        let text = "mod a; #[cfg(test)] mod b; #[cfg(test)] mod c { use x::y; } mod d { use z::w; }
                    #[cfg(test)] use u::v; #[derive(Debug)] struct S(i::J); #[cfg(unix)] use k::l;";
        let found = scan(text.parse().expect("tokens"));
        assert_eq!(found.files, ["a"]);
        assert_eq!(names(text), ["i::J", "k::l"]);
        assert_eq!(found.inline[0].0, "d");
        assert_eq!(found.inline[0].1.paths[0].names, ["z", "w"]);
    }

    #[test]
    fn lines_are_those_of_the_file() {
        let found = scan("fn f() {\n    a::b();\n}".parse().expect("tokens"));
        assert_eq!(found.paths[0].line, 2);
    }
}
