"""Published step times against `banyan plan calibrate`: errors of layouts that were not fitted.

    python3 bench/plan_tables.py DIRECTORY [--held DIRECTORY] [--banyan build/release/banyan]

DIRECTORY has step_vtrain_single.csv, step_vtrain_multi.csv, step_fsdp.csv, step_megatron_seqsel.csv,
step_mlperf.csv and models.csv (columns: docs/planning.md); --held has tables of the same names with other rows, which
are only judged. Prints the mean absolute errors: with the device's published figures alone (not fitted), fitted to all
rows, and of whole layouts that are left out of a fit, in five parts in turn; or of the larger runs, and of the largest
run of each program and machine.
"""
import argparse
import csv
import json
import pathlib
import subprocess
import tempfile

CLUSTERS = {
    # Peaks of the makers, and bytes a score where attention is not fused; the other figures are where fits begin.
    "a100_one": ("a100", 312, 1590, 26, [("host", 8, 6, 230)]),
    "a100": ("a100", 312, 1590, 26, [("host", 8, 6, 230), ("rack", 64, 15, 100)]),
    "a100_fast": ("a100", 312, 1590, 0, [("host", 8, 6, 230), ("rack", 64, 15, 200)]),
    "a100_sel": ("a100", 312, 1590, 26, [("host", 8, 6, 230), ("rack", 64, 15, 200)]),
    "h100": ("h100", 1979, 3000, 0, [("host", 8, 5, 400), ("rack", 1344, 15, 350)]),
    "h100_bf16": ("h100", 989, 3000, 0, [("host", 8, 5, 400), ("rack", 64, 15, 350)]),
    "gb200": ("gb200", 5000, 7000, 0, [("rack", 72, 5, 700), ("spine", 64, 15, 3000)]),
}
FIELDS = ["kind", "layers", "width", "heads", "kv_heads", "mlp_width", "context", "vocabulary", "tied", "devices", "batch",
          "micro_batch", "tensor", "sequence", "pipeline", "shard", "zero", "virtual_stages", "recompute",
          "sequence_parallel", "sums", "overlap", "gradient_bytes", "bucket_mib", "split_sends", "step_s"]


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def write_cluster(path, name):
    device, tflops, memory, scores, levels = CLUSTERS[name]
    lines = [f"name: {name}", f"device: {{name: {device}, bf16_tflops: {tflops}, memory_gb_s: {memory}, launch_us: 5.8,",
             f"         score_bytes: {scores}, host_us: 10, product_share: 0.7, attention_share: 0.4, step_us: 1000}}", "levels:"]
    lines += [f"  - {{name: {n}, width: {w}, latency_us: {l}, gb_s: {g}}}" for n, w, l, g in levels]
    path.write_text("\n".join(lines) + "\n")


def shape(row, models):
    """The columns of a model of models.csv."""
    m = models[row["model"]]
    return {"kind": "llama" if m["gated"] == "1" else "gpt2", "layers": m["layers"], "width": m["width"],
            "heads": m["heads"], "kv_heads": m["kv_heads"], "mlp_width": m["mlp"], "vocabulary": m["vocabulary"],
            "tied": m["tied_embedding"]}


def vtrain(row, _):
    return {**{k: row[k] for k in ("layers", "width", "heads", "context", "devices", "batch", "micro_batch", "tensor",
                                   "pipeline")},
            "kind": "gpt2", "vocabulary": 51200, "tied": 1, "recompute": "full", "overlap": "none", "gradient_bytes": 2,
            "split_sends": 1,
            "step_s": float(row["step_ms"]) / 1e3}


def fsdp(row, models):
    # micro_batch is a device's; a row without shape is of a model that the table of models lacks.
    devices = int(row["devices"])
    tokens = int(row["batch"]) * int(row["context"])
    return {**shape(row, models), "context": row["context"], "devices": devices, "batch": row["batch"],
            "micro_batch": row["micro_batch"], "shard": devices, "zero": 3 if row["sharding"] == "FULL_SHARD" else 2,
            "recompute": "full" if row["recompute"] == "True" else "none",
            "gradient_bytes": 2 if row["mixed"] == "PURE" else 4, "step_s": tokens / float(row["tokens_per_s"])}


def megatron(row, models):
    return {**shape(row, models), "context": row["context"], "devices": row["devices"], "batch": row["batch"],
            "micro_batch": row["micro_batch"], "tensor": row["tensor"], "pipeline": row["pipeline"],
            "virtual_stages": row["virtual_stages"], "recompute": row["recompute"],
            "sequence_parallel": row["sequence_parallel"], "overlap": "none", "split_sends": 1, "step_s": row["step_s"]}


def mlperf(row, models):
    names = {"gpt3": "gpt3", "llama31_405b": "llama3.1-405b"}
    shard = int(row["data"])
    return {**shape({"model": names[row["model"]]}, models), "context": row["context"], "devices": row["devices"],
            "batch": row["batch"], "micro_batch": row["micro_batch"], "tensor": row["tensor"], "shard": shard, "zero": 1,
            "sequence": row["sequence"], "pipeline": row["pipeline"], "virtual_stages": row["virtual_stages"],
            "sequence_parallel": 1, "bucket_mib": max(40, shard) * 4e6 / 2**20,
            "overlap": "gradients+sends" + ("+tensor" if row["tensor_overlap"] == "1" else ""),
            "step_s": row["step_s_median"]}


def layout_of(row):
    """What one layout of a table has in common, so that its rows are held together."""
    keys = ("devices", "tensor", "pipeline", "data", "model", "device", "context", "sharding")
    return tuple(row.get(k, "") for k in keys)


def largest_runs(rows):
    """Of each program and machine that has runs of several sizes, the runs on most devices."""
    families = {}
    for row in rows:
        families.setdefault((row["round"], row["model"], row["machine"]), []).append(row)
    largest = []
    for family in families.values():
        most = max(int(r["devices"]) for r in family)
        largest += [r for r in family if int(r["devices"]) == most and len(family) > 1]
    return largest


class Tables:
    def __init__(self, args, scratch):
        self.banyan, self.scratch, self.out = args.banyan, pathlib.Path(scratch), args.out
        self.models = {m["model"]: m for m in read(args.directory / "models.csv")}

    def write(self, name, rows, convert):
        path = self.scratch / name
        with open(path, "w", newline="") as file:
            out = csv.DictWriter(file, FIELDS, restval="")
            out.writeheader()
            for row in rows:
                cells = convert(row, self.models)
                defaults = {"kv_heads": cells["heads"], "mlp_width": 4 * int(cells["width"]), "tensor": 1, "sequence": 1,
                            "pipeline": 1, "shard": 1, "zero": 1, "virtual_stages": 1, "recompute": "none",
                            "sequence_parallel": 0, "sums": 0, "overlap": "gradients", "gradient_bytes": 4, "bucket_mib": 0,
                            "split_sends": 0}
                cells["tied"] = 0  # others exchange a tied table once a step, and add gradients in place
                out.writerow({**defaults, **cells})
        return path

    def run(self, table, cluster, *flags):
        done = subprocess.run([self.banyan, "plan", "calibrate", str(table), "--cluster", str(cluster), "--json", *flags],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        return json.loads(done.stdout)

    def fit(self, name, rows, convert):
        start, fitted = self.scratch / "start.yaml", self.scratch / "fitted.yaml"
        write_cluster(start, name)
        return self.run(self.write("open.csv", rows, convert), start, "--out", str(fitted)), fitted

    def left_out(self, cluster, rows, convert, outside):
        """Mean error of the rows for which `outside` holds, by a fit to the others; and their number."""
        judged = [r for r in rows if outside(r)]
        _, fitted = self.fit(cluster, [r for r in rows if not outside(r)], convert)
        return self.run(self.write("held.csv", judged, convert), fitted, "--keep")["mean_error"], len(judged)

    def judge(self, title, cluster, rows, convert, held, larger):
        start = self.scratch / "start.yaml"
        write_cluster(start, cluster)
        alone = self.run(self.write("open.csv", rows, convert), start, "--keep")
        result, fitted = self.fit(cluster, rows, convert)
        record = {"table": title, "rows": len(rows), "figures": result["fitted"], "not_fitted": alone["mean_error"],
                  "fitted": result["mean_error"], "worst": result["worst_error"]}
        if held:
            record["held_rows"] = self.run(self.write("held.csv", held, convert), fitted, "--keep")["mean_error"]
        if larger:
            record["larger_left_out"], _ = self.left_out(cluster, rows, convert, lambda r: int(r["devices"]) > larger)
            largest = largest_runs(rows)
            record["largest_left_out"], _ = self.left_out(cluster, rows, convert, lambda r: r in largest)
        if len(rows) >= 20:
            layouts = sorted({layout_of(r) for r in rows})
            parts = [self.left_out(cluster, rows, convert, lambda r, out=set(layouts[part::5]): layout_of(r) in out)
                     for part in range(5)]
            record["layouts_left_out"] = sum(e * n for e, n in parts) / sum(n for _, n in parts)
        errors = [f"{name.replace('_', ' ')} {100 * record[name]:.2f} %" for name in list(record)[3:]]
        print(f"{title}: {len(rows)} rows, {record['figures']} figures: {', '.join(errors)}", flush=True)
        if self.out:
            with open(self.out, "a") as file:
                file.write(json.dumps(record) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--held", type=pathlib.Path)
    parser.add_argument("--banyan", default="build/release/banyan")
    parser.add_argument("--only", default="", help="part of a table's name")
    parser.add_argument("--out", help="append a JSON line for each table to this file")
    args = parser.parse_args()
    cases = [("vtrain_single", "a100_one", vtrain, None, 0), ("vtrain_multi", "a100", vtrain, None, 0),
             ("fsdp", "a100_fast", fsdp, lambda r: r["device"].startswith("a100"), 0),
             ("fsdp", "h100_bf16", fsdp, lambda r: r["device"].startswith("h100") and "fp8" not in r["precision"], 0),
             ("megatron_seqsel", "a100_sel", megatron, None, 0),
             ("mlperf", "h100", mlperf, lambda r: r["machine"].startswith("h100"), 768),
             ("mlperf", "gb200", mlperf, lambda r: r["machine"].startswith("gb200"), 512)]
    with tempfile.TemporaryDirectory() as scratch:
        tables = Tables(args, scratch)
        for name, cluster, convert, keep, larger in cases:
            if args.only not in name:
                continue
            file = f"step_{name}.csv"
            rows = [r for r in read(args.directory / file) if keep is None or keep(r)]
            held = []
            if args.held and (args.held / file).exists():
                held = [r for r in read(args.held / file) if keep is None or keep(r)]
            tables.judge(f"{name} ({cluster})", cluster, rows, convert, held, larger)


if __name__ == "__main__":
    main()
