"""merge_files.py CHECKOUT: merges modules of tfrecorder as MERGES says."""
import ast, re, subprocess, sys
from pathlib import Path

ROOT = Path(sys.argv[1])
PKG = ROOT / "tfrecorder"
MERGES = [line.split("#")[0].split() for line in Path(sys.argv[2]).read_text().splitlines() if line.split("#")[0].strip()]

def parts(text):
    """docstring text, imports, body (texts)"""
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    body = tree.body
    doc = ast.get_docstring(tree, clean=False)
    start = 0
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and isinstance(body[0].value.value, str):
        docend = body[0].end_lineno
        body = body[1:]
    else:
        docend = 0
    imports = []
    last = docend
    for node in body:
        is_import = isinstance(node, (ast.Import, ast.ImportFrom)) or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
        if not is_import:
            break
        last = node.end_lineno
        imports.append(node)
    imp = "".join("".join(lines[n.lineno-1:n.end_lineno]) for n in imports if not isinstance(n, ast.If))
    imp += "".join("".join(lines[n.lineno-1:n.end_lineno]) for n in imports if isinstance(n, ast.If))
    # comments between
    rest = "".join(lines[last:])
    return "".join(lines[:docend]), imp, rest, imports

def together(a, b):
    def split(t):
        tree = ast.parse(t); lines = t.splitlines(keepends=True)
        get = lambda kind: "".join("".join(lines[n.lineno-1:n.end_lineno]) for n in tree.body if isinstance(n, ast.If) == kind)
        return get(False), get(True)
    (p1, t1), (p2, t2) = split(a), split(b)
    return "\n" + p1 + p2 + t1 + t2

def same_definitions(a, b, names):
    """names whose assignment is the same text in both"""
    def defs(t):
        return {n.targets[0].id: ast.unparse(n) for n in ast.parse(t).body if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)}
    x, y = defs(a), defs(b)
    return {n for n in names if n in x and x.get(n) == y.get(n)}

def drop_definitions(t, names):
    lines = t.splitlines(keepends=True)
    for n in reversed(ast.parse(t).body):
        if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name) and n.targets[0].id in names:
            del lines[n.lineno-1:n.end_lineno]
    return "".join(lines)

def toplevel(text):
    names = set()
    for node in ast.parse(text).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            for t in node.targets:
                for n in ast.walk(t):
                    if isinstance(n, ast.Name): names.add(n.id)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names

def rename_names(text, mapping):
    """rename identifiers (Name nodes, function/class defs) in a module text"""
    tree = ast.parse(text)
    edits = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in mapping:
            edits.append((node.lineno, node.col_offset, node.id))
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in mapping and node in tree.body:
            line = node.lineno
            src = text.splitlines()[line-1]
            edits.append((line, src.index(node.name, src.index("def ") if "def " in src else src.index("class ")), node.name))
    lines = text.splitlines(keepends=True)
    for ln, col, name in sorted(edits, reverse=True):
        l = lines[ln-1].encode()
        assert l[col:col+len(name)].decode() == name, (ln, col, name, lines[ln-1])
        lines[ln-1] = (l[:col] + mapping[name].encode() + l[col+len(name):]).decode()
    return "".join(lines)

ALL = [p for d in ("tfrecorder", "tests", "benchmarks", "scripts", "samples") for p in (ROOT / d).rglob("*.py") if "__pycache__" not in str(p)]

def main():
    for folder, target, *sources in MERGES:
        merge(folder, target, sources)
    print("done")

def merge(folder, target, sources):
    d = PKG / folder
    tpath = d / f"{target}.py"
    head = tpath if tpath.exists() else d / f"{sources[0]}.py"
    if not tpath.exists():
        subprocess.run(["git", "-C", str(ROOT), "mv", str(head.relative_to(ROOT)), str(tpath.relative_to(ROOT))], check=True)
        ALL[:] = [tpath if p == head else p for p in ALL]
        retarget(folder, sources[0], target)
        sources = sources[1:]
    order = []
    for s in sources:
        before = not s.startswith("+")
        order.append((s.lstrip("+"), before))
    text = tpath.read_text()
    doc, imp, rest, _ = parts(text)
    for s, before in order:
        spath = d / f"{s}.py"
        stext = spath.read_text()
        clash = toplevel(stext) & toplevel(doc + imp + rest)
        equal = same_definitions(doc + imp + rest, stext, clash)
        if equal:
            print("SAME", folder, target, s, equal)
            stext = drop_definitions(stext, equal) if not before else stext
            if before:
                rest = drop_definitions(rest, equal)
            clash -= equal
        if clash:
            mapping = {n: (f"_{s}_{n.lstrip('_')}" if n.startswith("_") else f"{n}_CLASH") for n in clash}
            same = {n for n in clash}
            print("CLASH", folder, target, s, sorted(clash))
            stext = rename_names(stext, mapping)
        sdoc, simp, srest, _ = parts(stext)
        imp = together(imp, simp)
        rest = ("\n\n" + srest.strip("\n") + "\n\n\n" + rest.strip("\n") + "\n") if before else (rest.rstrip("\n") + "\n\n\n" + srest.strip("\n") + "\n")
        subprocess.run(["git", "-C", str(ROOT), "rm", "-q", "-f", "--cached", str(spath.relative_to(ROOT))], check=True)
        spath.unlink()
        ALL.remove(spath)
        tpath.write_text(doc + imp + rest)
        retarget(folder, s, target)
        doc, imp, rest, _ = parts(tpath.read_text())
    # imports of itself
    dotted = f"tfrecorder.{folder.replace('/', '.')}"
    text = tpath.read_text()
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    drop = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == f"{dotted}.{target}":
            if any(a.asname and a.asname != a.name for a in node.names): print("ALIAS", folder, target, ast.unparse(node))
            drop.append((node.lineno, node.end_lineno))
    for a, b in sorted(drop, reverse=True):
        del lines[a-1:b]
    tpath.write_text("".join(lines))

def retarget(folder, old, new):
    pkg = f"tfrecorder.{folder.replace('/', '.')}"
    for p in ALL:
        text = p.read_text()
        if old not in text: continue
        out = re.sub(rf"\b{re.escape(pkg)}\.{old}\b(?!\.py)", f"{pkg}.{new}", text)
        out = re.sub(rf"(?<![\w/]){re.escape(folder)}/{old}\.py\b", f"{folder}/{new}.py", out)
        out = re.sub(rf"\btfrecorder/{re.escape(folder)}/{old}\.py\b", f"tfrecorder/{folder}/{new}.py", out)
        # module imports
        try: tree = ast.parse(out)
        except SyntaxError: print("SYNTAX", p); raise
        hits = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module == pkg and any(a.name == old for a in n.names)]
        if hits:
            lines = out.splitlines(keepends=True)
            alias = None
            for n in hits:
                for a in n.names:
                    if a.name == old: alias = a.asname
            if alias:
                for n in hits:
                    for i in range(n.lineno-1, n.end_lineno):
                        lines[i] = re.sub(rf"\b{old}\b(?= as {alias})", new, lines[i])
            else:
                dotted = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
                itself = p == PKG / folder / f"{new}.py"
                edits = [(n.lineno, n.col_offset) for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == old and (id(n) in dotted or "tests" in str(p))]
                itself = p == PKG / folder / f"{new}.py"
                for ln, col in sorted(edits, reverse=True):
                    b = lines[ln-1].encode()
                    assert b[col:col+len(old)].decode() == old
                    if itself:
                        lines[ln-1] = (b[:col] + b[col+len(old)+1:]).decode()
                    else:
                        lines[ln-1] = (b[:col] + new.encode() + b[col+len(old):]).decode()
                for n in hits:
                    for i in range(n.lineno-1, n.end_lineno):
                        lines[i] = re.sub(rf"\b{old}\b", new if not itself else new, lines[i])
                        if itself and re.fullmatch(rf"\s*from {re.escape(pkg)} import {new}\s*", lines[i]): lines[i] = ""
            out = "".join(lines)
        if out != text: p.write_text(out)
    for p in [*(ROOT / "docs").rglob("*.md"), ROOT / "pyproject.toml", ROOT / "Makefile", ROOT / "mkdocs.yml"]:
        text = p.read_text()
        out = re.sub(rf"\b{re.escape(pkg)}\.{old}\b", f"{pkg}.{new}", text)
        out = re.sub(rf"(?<![\w/]){re.escape(folder)}/{old}\.py\b", f"{folder}/{new}.py", out)
        out = out.replace(f"tfrecorder/{folder}/{old}.py", f"tfrecorder/{folder}/{new}.py")
        if out != text: p.write_text(out)

main()
