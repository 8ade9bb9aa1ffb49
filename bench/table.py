"""Shared code of the benches: rows in one format, printed as a table and written as JSON."""
import json
import statistics


def row(what, unit, ours, peer=None, peer_name=None, goal=None, larger_is_better=True, ratio=None):
    """A comparison with a peer or, without one, a figure with an optional goal (a maximum where smaller is better). `ratio` defaults to that of the two figures."""
    if peer is None:
        holds = None if goal is None else (ours >= goal if larger_is_better else ours <= goal)
        return {"what": what, "unit": unit, "ours": ours, "goal": goal, "holds": holds}
    if ratio is None and ours and peer:
        ratio = ours / peer if larger_is_better else peer / ours
    return {"what": what, "unit": unit, "ours": ours, "peer": peer, "peer_name": peer_name, "ratio": ratio, "goal": goal}


def number(value):
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"


def show(name, rows, file=None):
    """Prints the table, and writes the rows as JSON to `file`."""
    lines = [("measurement", "unit", "ours", "peer", "ratio", "goal", "result")]
    for r in rows:
        compared = "ratio" in r
        met = "" if r["goal"] is None else "met" if (r["ratio"] is not None and r["ratio"] >= r["goal"] if compared else r["holds"]) else "NOT MET"
        goal = "" if r["goal"] is None else f"x {r['goal']}" if compared else number(r["goal"])
        lines.append((r["what"], r["unit"], number(r["ours"]), number(r.get("peer")), f"{r['ratio']:.2f}" if compared and r["ratio"] else "", goal, met))
    widths = [max(len(line[i]) for line in lines) for i in range(7)]
    peers = {r["peer_name"] for r in rows if r.get("peer_name")}
    if peers:
        print(f"peer: {', '.join(sorted(peers))}; a larger ratio is better")
    for line in lines:
        print("  ".join(text.ljust(width) if i < 2 or i == 6 else text.rjust(width) for i, (text, width) in enumerate(zip(line, widths))).rstrip())
    if file:
        with open(file, "w") as out:
            json.dump({"bench": name, "rows": rows}, out, indent=1)
            out.write("\n")


median = statistics.median


def paired(ours, peer):
    """The ratio of two series that were measured alternately: the median of the ratios of each round, because the speed of a host varies over time."""
    return median(one / other for one, other in zip(ours, peer))
