"""The figures of the paper's tables, read from its LaTeX: python tests/paper/read_tex.py PAPER.tex > tests/paper/figures.json"""

import json
import re
import sys
from pathlib import Path

FIGURE = re.compile(r"-?\d+(\.\d+)?(±\d+(\.\d+)?)?|-")


def read_tables(tex: str) -> dict[str, list[list[str]]]:
    """Rows of figures by the label of the table; a dash stands for an empty place. Rows without any figure are left out."""
    found = {}
    for part in re.findall(r"\\begin\{table\*?\}.*?\\end\{table\*?\}", tex, re.DOTALL):
        body = part.partition(r"\begin{tabular}")[2].partition(r"\end{tabular}")[0]
        label = re.search(r"\\label\{tab:(\w+)\}", part)
        rows = [[figure for cell in line.split("&") if (figure := _figure(cell))] for line in body.split(r"\\")]
        assert label is not None
        found[label[1]] = [row for row in rows if set(row) - {"-"}]
    return found


def _figure(cell: str) -> str:
    """The cell where it is a figure or a dash, otherwise nothing."""
    plain = re.sub(r"\\(mid|top|bottom)rule(\{\})?|\\textbf|\\%|[{}\s$]", "", cell.replace(r"\pm", "±"))
    return plain if FIGURE.fullmatch(plain) else ""


if __name__ == "__main__":
    tables = read_tables(Path(sys.argv[1]).read_text())
    parts = []
    for name, rows in tables.items():
        lines = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in rows)
        parts.append(f'"{name}": [\n{lines}\n]')
    print("{\n" + ",\n".join(parts) + "\n}")
