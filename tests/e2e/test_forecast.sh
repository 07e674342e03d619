#!/bin/sh
# Forecasts: training on the series of a table, the part that is kept for a test, ranks, a resume, and what is refused.
. "$(dirname "$0")/../support/shell.sh"
# shellcheck source=tests/support/serve.sh
. "$root/tests/support/serve.sh"

python3 - <<'END' || fail "no data"
import datetime, math
start = datetime.datetime(2026, 2, 27)
with open("shops.csv", "w") as f:
    f.write("when,shop,sold,price\n")
    for i in range(200):
        for k, shop in enumerate(("north", "south")):
            price = "" if i % 23 == 5 else f"{10 + k + math.cos(i / 5):.3f}"
            f.write(f"{start + datetime.timedelta(hours=i)},{shop},{math.sin(i * math.pi / 12) + k:.4f},{price}\n")
END
cat >shops.yaml <<'END'
name: shops
task: {kind: forecast, season: 24}
model: {kind: dlinear, context: 48, outputs: 6, kernel: 5}
data: {table: shops.csv, series: shop, valid_fraction: 0.1, test_fraction: 0.2}
train: {steps: 40, batch: 8, micro_batch: 2, eval_every: 20, threads: 1}
precision: {compute: f32}
optimizer: {lr: 3e-3, weight_decay: 0}
checkpoint: {every: 20, keep: 9}
END

say "train on two series"
run 0 "$banyan" train shops.yaml
holds out "2 series of 400 rows altogether; times: when; 2 channels: sold, price"
holds out "174 windows for training, 30 held out" # 140 rows - 53, and 20 rows - 5, of each
holds out season_mse
last=runs/shops/checkpoints/step-00000040
holds "$last/series.json" '"time": "when"'
holds "$last/config.json" '"prediction_length": 6'

say "the same bits on two ranks, and after a resume"
run 0 "$banyan" launch -n 2 train shops.yaml --set name=two
same "$last/model.safetensors" runs/two/checkpoints/step-00000040/model.safetensors
cp "$last/model.safetensors" whole.safetensors
rm -r "$last"
run 0 "$banyan" train --resume runs/shops
same "$last/model.safetensors" whole.safetensors

say "the part that is kept for a test; other data"
run 0 "$banyan" eval runs/shops --test --json
python3 -c 'import json
e = json.load(open("out"))
assert e["windows"] == 70 and e["mse"] < e["last_mse"], e' || fail "the evaluation of the test"
run 0 "$banyan" eval runs/shops --data shops.csv
holds out "windows        294"
run 2 "$banyan" eval runs/shops --test --data shops.csv
holds err "choose one of --test and --data"

say "steps on random examples: the 12 numbers of a window, each with a variance of 1/3, all count"
run 0 "$banyan" bench train shops.yaml --steps 3 --json
python3 -c 'import json
assert json.load(open("out"))["loss"] > 4' || fail "the loss: $(cat out)"

say "forecasts continue each series"
run 0 "$banyan" predict runs/shops shops.csv --csv --out ahead.csv
python3 -c 'import csv
rows = list(csv.DictReader(open("ahead.csv")))
assert len(rows) == 12 and list(rows[0]) == ["shop", "step", "when", "sold", "price"], rows[0]
assert rows[0]["when"] == "2026-03-07 08:00:00" and rows[11]["shop"] == "south" and rows[11]["step"] == "6", rows
assert all(9 < float(r["price"]) < 12.5 for r in rows), rows' || fail "the forecasts"

say "a series with few rows does not stop the others"
(cat shops.csv; echo "2026-02-27 00:00:00,west,1,10") >west.csv
run 0 "$banyan" predict runs/shops west.csv
holds err "warning: shop west is skipped: it has 1 rows, and the model reads 48"
holds out '{"shop":"west","skipped":"1 rows, and the model reads 48"}'
[ "$(wc -l <out)" -eq 13 ] || fail "$(wc -l <out) lines"
run 0 "$banyan" predict runs/shops west.csv --csv
[ "$(wc -l <out)" -eq 13 ] && ! grep -q west out || fail "the table of forecasts: $(cat out)"

say "odd rows: steps of time, doubles, and damaged ones"
python3 - <<'END' || fail "no data"
lines = open("shops.csv").read().splitlines()
odd = [l.replace(":00:00,", ":07:00,") for l in lines[1:]]
odd[50] = odd[48]  # a row of a series twice, and a row that is lost
odd.insert(60, "tomorrow,north,1,10")
odd[70], odd[72] = odd[72], odd[70]
open("odd.csv", "w").write("\n".join([lines[0]] + odd) + "\n")
END
odd="--set data.table=odd.csv --set train.steps=4 --set train.eval_every=4 --set name=odd"
run 2 "$banyan" train shops.yaml $odd --set data.time=when --set data.resample=1 --set data.corrupt=skip
holds err "data.resample '1' is no step of time"
run 1 "$banyan" train shops.yaml $odd --set data.time=when --set data.corrupt=skip --set data.corrupt_budget=0
holds err "3 of 401 windows are damaged"
run 0 "$banyan" train shops.yaml $odd --set data.time=when --set data.corrupt=skip --set data.sort=true --set data.resample=1h \
    --set data.duplicates=first --set data.zone=Etc/GMT-2 --set data.standardize=series
holds err "left out: odd.csv"
run 0 "$banyan" predict runs/odd odd.csv
holds out '"when":"2026-03-07 08:00:00"'

say "what is known ahead: hours, holidays and prices"
python3 - <<'END' || fail "no data"
lines = open("shops.csv").read().splitlines()
def fill(line):
    when, shop, sold, price = line.split(",")
    return ",".join((when, shop, sold, price or "10"))
table = [lines[0]] + [fill(l) for l in lines[1:]]
open("known.csv", "w").write("\n".join(table) + "\n")
more = [f"2026-03-07 {h:02d}:00:00,{shop},,11.5" for h in range(8, 14) for shop in ("north", "south")]
open("ahead.csv", "w").write("\n".join(table + more) + "\n")
open("feasts.txt", "w").write("# of 2026\n2026-03-01 Sunday\n")
END
for kind in tide lstm tcn; do
    run 0 "$banyan" train shops.yaml --set name="$kind" --set model.kind="$kind" --set model.width=8 --set model.layers=1 \
        --set data.table=known.csv --set data.known='[price]' --set data.time_features='[hour, weekday, holiday]' \
        --set data.holidays=feasts.txt --set train.steps=4 --set train.eval_every=4
    holds "runs/$kind/checkpoints/step-00000004/config.json" '"num_known_inputs": 6'
    run 0 "$banyan" predict "runs/$kind" ahead.csv
    holds out '"when":"2026-03-07 08:00:00"'
    [ "$(wc -l <out)" -eq 12 ] || fail "$(wc -l <out) lines"
done
cat >twin.py <<'END'
# The forecast of TiDE for the first shop by the paper's equations, in double.
import csv, datetime, json, math, struct
at = "runs/tide/checkpoints/step-00000004/"
data = open(at + "model.safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
weights = {}
for name, v in json.loads(data[8:8 + size]).items():
    if name != "__metadata__":
        begin, end = (8 + size + i for i in v["data_offsets"])
        numbers = struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
        columns = v["shape"][-1]
        weights[name] = [numbers[i:i + columns] for i in range(0, len(numbers), columns)] if len(v["shape"]) == 2 else numbers
learned = json.load(open(at + "series.json"))
scale, price = learned["channels"][0], learned["known"][0]
rows = [r for r in csv.DictReader(open("ahead.csv")) if r["shop"] == "north"]
context, horizon, window = 48, 6, rows[200 - 48:]
def told(row):
    when = datetime.datetime.fromisoformat(row["when"])
    angles = (2 * math.pi * when.hour / 24, 2 * math.pi * (when.isoweekday() % 7) / 7)
    waves = [f(a) for a in angles for f in (math.sin, math.cos)]
    return waves + [1.0 if when.date() == datetime.date(2026, 3, 1) else 0.0, (float(row["price"]) - price["mean"]) / price["deviation"]]
def linear(x, name):
    return [sum(a * b for a, b in zip(x, w)) + c for w, c in zip(weights[name + ".weight"], weights[name + ".bias"])]
def block(x, name, norm=True):
    hidden = [max(v, 0.0) for v in linear(x, name + ".fc1")]
    y = [a + b for a, b in zip(linear(hidden, name + ".fc2"), linear(x, name + ".fc3"))]
    if not norm:
        return y
    mean = sum(y) / len(y)
    deviation = math.sqrt(sum((v - mean) ** 2 for v in y) / len(y) + 1e-5)
    return [(v - mean) / deviation * w + b for v, w, b in zip(y, weights[name + ".ln.weight"], weights[name + ".ln.bias"])]
z = [(float(r["sold"]) - scale["mean"]) / scale["deviation"] for r in window[:context]]
mean = sum(z) / context
deviation = math.sqrt(sum((v - mean) ** 2 for v in z) / context + 1e-5)
x = [(v - mean) / deviation for v in z]
features = [block(told(r), "feature_encoder") for r in window]
y = block(x + [v for f in features for v in f], "encoders.0")
for i in range(2):
    y = block(y, f"decoders.{i}")
each = len(y) // horizon
straight = linear(x, "residual_proj")
for i, row in enumerate(csv.DictReader(open("tide.csv"))):
    if row["shop"] == "north":
        said = block(features[context + i] + y[each * i:each * (i + 1)], "temporalDecoder", False)[0] + straight[i]
        want = (said * deviation + mean) * scale["deviation"] + scale["mean"]
        assert abs(float(row["sold"]) - want) < 1e-5, (i, row["sold"], want)
END
run 0 "$banyan" predict runs/tide ahead.csv --csv --out tide.csv
python3 twin.py || fail "TiDE's forecast is not that of its equations"
run 2 "$banyan" predict runs/tide known.csv
holds err "need 6 rows behind its last number, and there are 0"
run 2 "$banyan" train shops.yaml --set data.time_features='[hour]'
holds err "model.kind dlinear does not read what is known ahead"
run 2 "$banyan" train shops.yaml --set data.time_features='[moon]'
holds err "there is no 'moon'"

say "PatchTST, with the names of transformers"
run 0 "$banyan" train shops.yaml --set name=patches --set model.kind=patchtst --set model.width=8 --set model.heads=2 \
    --set model.layers=1 --set norm.kind=batch --set train.steps=4
holds runs/patches/checkpoints/step-00000004/config.json '"PatchTSTForPrediction"'
run 0 "$banyan" predict runs/patches shops.csv

say "a recurrent network on two ranks, and with other threads"
recurrent="--set name=states --set model.kind=lstm --set model.width=8 --set model.layers=2 --set train.steps=4"
run 0 "$banyan" train shops.yaml $recurrent
cp runs/states/checkpoints/step-00000004/model.safetensors one.safetensors
run 0 "$banyan" launch -n 2 train shops.yaml $recurrent --set train.threads=2
same runs/states/checkpoints/step-00000004/model.safetensors one.safetensors

say "weights to start from tell how long windows are"
sed 's/{kind: dlinear, .*/{from: runs\/shops}/; s/name: shops/name: from/' shops.yaml >from.yaml
run 0 "$banyan" train from.yaml --set train.steps=2
holds out "174 windows for training, 30 held out"

say "a compressed model forecasts, too"
run 0 "$banyan" compress runs/shops --method int8 --out small
run 0 "$banyan" predict small shops.csv
[ "$(wc -l <out)" -eq 12 ] || fail "$(wc -l <out) lines"

say "quantiles: a band in the forecasts, their metrics, and a file of ONNX"
run 0 "$banyan" train shops.yaml --set name=band --set task.loss=quantile --set task.quantiles='[0.1, 0.5, 0.9]'
holds runs/band/checkpoints/step-00000040/config.json '"loss": "quantile"'
run 0 "$banyan" eval runs/band --test --json
python3 -c 'import json
e = json.load(open("out"))
assert abs(e["crps"] - 2 * e["pinball"]) < 1e-7 and 0 <= e["coverage_80"] <= 1, e
assert abs(e["valid_loss"] - e["pinball"]) < 1e-5 and e["ets_mse"] > 0 and e["mase"] > 0, e' || fail "metrics of quantiles"
run 0 "$banyan" predict runs/band shops.csv --csv --out band.csv
python3 -c 'import csv
rows = list(csv.DictReader(open("band.csv")))
assert len(rows) == 12 and list(rows[0])[3:7] == ["sold", "sold_0.1", "sold_0.5", "sold_0.9"], rows[0]
assert all(r["sold"] == r["sold_0.5"] for r in rows), rows' || fail "the quantiles of forecasts"
run 0 "$banyan" export runs/band --format onnx --out band-onnx
run 0 "$banyan" train shops.yaml --set name=more --set model.from=runs/band --set train.steps=2
holds out "174 windows for training, 30 held out"
run 2 "$banyan" train shops.yaml --set name=other --set model.from=runs/band --set task.loss=mae
holds err "task.loss is mae, but the weights of model.from=runs/band"

say "distributions: of numbers, and of counts"
awk -F , 'NR == 1 { print "when,shop,sold,price"; next } { printf "%s,%s,%d,1\n", $1, $2, $3 < 0 ? 0 : $3 }' shops.csv >counts.csv
run 0 "$banyan" train shops.yaml --set name=normal --set task.loss=gaussian
run 0 "$banyan" eval runs/normal --test --json
python3 -c 'import json
e = json.load(open("out"))
assert abs(e["valid_loss"] - e["nll"]) < 1e-4 and 0 < e["crps"] < e["mae"] and 0 <= e["coverage_80"] <= 1, e' || fail "metrics of a distribution"
run 0 "$banyan" train shops.yaml --set name=counts --set data.table=counts.csv --set 'data.channels=[sold]' --set task.loss=negative_binomial
holds runs/counts/checkpoints/step-00000040/config.json '"loss": "negative_binomial"'
run 0 "$banyan" eval runs/counts --test --json
python3 -c 'import json
e = json.load(open("out"))
assert abs(e["valid_loss"] - e["nll"]) < 1e-4 and e["crps"] > 0, e' || fail "metrics of counts"
run 0 "$banyan" predict runs/counts counts.csv --csv --out counted.csv
python3 -c 'import csv
rows = list(csv.DictReader(open("counted.csv")))
assert all(float(r["sold_0.9"]) == round(float(r["sold_0.9"])) >= float(r["sold_0.1"]) >= 0 for r in rows), rows' || fail "quantiles of counts"
run 0 "$banyan" export runs/normal --format onnx --out normal-onnx
run 1 "$banyan" train shops.yaml --set name=no-counts --set task.loss=negative_binomial
holds err "which is no count"

say "interpretable stacks"
run 0 "$banyan" train shops.yaml --set name=stacks --set model.kind=nbeats --set model.width=8 --set model.layers=2 \
    --set model.blocks=2 --set 'model.stacks=[trend, seasonality]' --set model.share=true --set train.steps=4
holds runs/stacks/checkpoints/step-00000004/config.json '"degree_of_polynomial": 2'
run 0 "$banyan" predict runs/stacks shops.csv
run 2 "$banyan" train shops.yaml --set model.kind=nbeats --set 'model.stacks=[weather]'
holds err "there is no stack 'weather'"

say "absolute errors"
run 0 "$banyan" train shops.yaml --set name=absolute --set task.loss=mae --set train.steps=2

say "PatchTST has a layer for each quantile"
run 0 "$banyan" train shops.yaml --set name=likely --set model.kind=patchtst --set model.width=8 --set model.heads=2 \
    --set model.layers=1 --set norm.kind=batch --set train.steps=4 --set task.loss=quantile
grep -q "head.projection.proj.2.weight" runs/likely/checkpoints/step-00000004/model.safetensors || fail "no third layer"
run 0 "$banyan" predict runs/likely shops.csv

say "the row that no other tells of is the oddest one"
sed 's/^\(2026-03-05 04:00:00,south\),[^,]*/\1,9/' shops.csv >spike.csv
run 0 "$banyan" predict runs/shops spike.csv --anomaly --csv
python3 -c 'import csv
rows = list(csv.DictReader(open("out")))
assert list(rows[0]) == ["shop", "row", "when", "score", "sold_score", "price_score"] and len(rows) == 294, rows[0]
odd = max(rows, key=lambda r: float(r["score"]))
assert (odd["when"], odd["shop"], odd["row"]) == ("2026-03-05 04:00:00", "south", "148"), odd' || fail "the oddest row"
run 2 "$banyan" train shops.yaml --set task.anomaly=1x
awk 'BEGIN {
    print "when,x"
    for (i = 0; i < 60; i++) {
        hour = i < 26 ? i : i + 1 # clocks in Berlin go from 02:00 to 03:00 on March 29
        printf "2026-03-%d %02d:00:00,%d\n", 28 + hour / 24, hour % 24, i * i % 7
    }
}' >spring.csv
run 0 "$banyan" train shops.yaml --set name=spring --set data.table=spring.csv --set data.series= --set data.zone=Europe/Berlin \
    --set task.season=0 --set model.context=8 --set model.outputs=1 --set train.steps=2 --set train.eval_every=0
run 0 "$banyan" predict runs/spring spring.csv --anomaly --csv
awk -F , 'NR == FNR { when[FNR - 2] = $1; next } FNR > 1 && $2 != when[$1]' spring.csv out >wrong
[ ! -s wrong ] || fail "times of anomalies where clocks change: $(cat wrong)"

say "a server continues the series of a request as predict does"
serve_models runs/band
await_ready
python3 - >request.json <<'END'
import csv, json, sys
def cell(name, text):
    return float(text) if text and name in ("sold", "price") else text or None
rows = [{k: cell(k, v) for k, v in r.items()} for r in csv.DictReader(open("shops.csv"))]
json.dump({"model": "band", "rows": rows[-100:]}, sys.stdout)
END
run 0 curl -sf "$url/v1/predict" -H 'Content-Type: application/json' -d @request.json
python3 -c 'import csv, json
rows = list(csv.DictReader(open("band.csv")))
said = json.load(open("out"))["predictions"]
assert [p["index"] for p in said] == [0, 1] and set(said[0]) == {"index"} | set(rows[0]) - {"shop", "step", "when"}, said[0]
for i, p in enumerate(said):
    for name in ("sold", "price", "sold_0.1", "price_0.9"):
        want = [float(r[name]) for r in rows[6 * i:6 * i + 6]]
        assert all(abs(a - b) < 1e-5 for a, b in zip(p[name], want)) and len(p[name]) == 6, (p[name], want)' || fail "the forecasts of the server"
python3 -c 'import json
r = json.load(open("request.json"))
json.dump(dict(r, rows=[dict(row, price=None) for row in r["rows"]]), open("missing.json", "w"))
del r["rows"][:10]
json.dump(r, open("request.json", "w"))'
[ "$(curl -s -o out -w '%{http_code}' "$url/v1/predict" -H 'Content-Type: application/json' -d @request.json)" = 400 ] || fail "$(cat out)"
holds out "series north has 45 rows, and the model reads 48"
[ "$(curl -s -o out -w '%{http_code}' "$url/v1/predict" -H 'Content-Type: application/json' -d @missing.json)" = 400 ] || fail "$(cat out)"
holds out "no number in column 'price' in 48 of the last 48 rows"
stop

say "a backtest of a run, and with a run for each fold"
run 0 "$banyan" backtest runs/band --folds 3 --step 5 --json
python3 -c 'import json
b = json.load(open("out"))
assert [f["rows_behind"] for f in b["folds"]] == [10, 5, 0] and [f["windows"] for f in b["folds"]] == [10] * 3, b
mean = sum(f["mse"] for f in b["folds"]) / 3
assert abs(b["mean"]["mse"] - mean) < 1e-7 and "ets_mse" in b["mean"], b' || fail "the backtest"
! grep -q "validated on rows" err || fail "rows that are kept for a test were called others"
run 0 "$banyan" backtest runs/band --folds 9 --step 5
holds err "the run was validated on rows that it is tested on"
run 2 "$banyan" backtest runs/band --folds 20 --step 5
holds err "the run was trained on rows that it would be tested on" # 20 5 + 6 - 1
holds err "(data.test_fraction=105)"
run 0 "$banyan" backtest shops.yaml --refit --folds 2 --step 1 --set train.steps=4
[ "$(wc -l <out)" -eq 4 ] && [ -d runs/shops-fold-2 ] || fail "the backtest with refits: $(cat out)"
holds err "fold 2/2: mse"
run 2 "$banyan" backtest runs/band --set train.steps=4
holds err "set needs --refit"

say "a forecast is drawn beside the truth"
if "$banyan" plot runs/band --show forecast --series south --out band.svg >out 2>err; then
    grep -q "<svg" band.svg || fail "no picture"
    run 2 "$banyan" plot runs/band --show forecast --series west --out west.svg
    holds err "no window of a series 'west'"
else
    holds err "without"
fi

say "windows are classified, and their series held out"
python3 - <<'END' || fail "no data"
import math, random
random.seed(1)
with open("motions.csv", "w") as f:
    f.write("motion,x,y,kind\n")
    for i in range(60):
        kind, phase = ("walk", "run")[i % 2], random.uniform(0, 6)
        for t in range(16 if i else 9):
            a = phase + t * (0.4 if kind == "walk" else 1.1)
            f.write(f"m{i},{math.sin(a) + random.gauss(0, .1):.3f},{math.cos(a) + random.gauss(0, .1):.3f},{kind}\n")
END
cat >motions.yaml <<'END'
name: motions
task: {kind: classify}
model: {kind: lstm, context: 16, layers: 1, width: 16}
data: {table: motions.csv, series: motion, target: kind, valid_fraction: 0.3}
train: {steps: 60, batch: 16, eval_every: 0, threads: 1}
precision: {compute: f32}
optimizer: {lr: 1e-2, weight_decay: 0}
checkpoint: {every: 60}
END
run 0 "$banyan" train motions.yaml
holds err "1 series have fewer rows than the 16 of a window, and are left out"
run 0 "$banyan" eval runs/motions --json
python3 -c 'import json
e = json.load(open("out"))
assert e["accuracy"] > 0.9, e' || fail "the accuracy of windows"
head -n 58 motions.csv | tail -n +11 | sed '1i motion,x,y,kind' >some.csv # three motions
run 0 "$banyan" predict runs/motions some.csv
python3 -c 'import json
said = [json.loads(line) for line in open("out")]
assert [p["label"] for p in said] == ["run", "walk", "run"] and [p["index"] for p in said] == [0, 1, 2], said
assert [(p["motion"], p["row"]) for p in said] == [("m1", 16), ("m2", 32), ("m3", 48)], said' || fail "the classes of windows"
serve_models runs/motions
await_ready
python3 -c 'import csv, json
rows = [dict(r, x=float(r["x"]), y=float(r["y"])) for r in csv.DictReader(open("some.csv"))]
for r in rows:
    del r["kind"]
json.dump({"model": "motions", "rows": rows}, open("request.json", "w"))'
run 0 curl -sf "$url/v1/predict" -H 'Content-Type: application/json' -d @request.json
python3 -c 'import json
said = json.load(open("out"))["predictions"]
assert [p["label"] for p in said] == ["run", "walk", "run"], said' || fail "the classes that the server says"
python3 -c 'import json
r = json.load(open("request.json"))
del r["rows"][0]
json.dump(r, open("request.json", "w"))'
[ "$(curl -s -o out -w '%{http_code}' "$url/v1/predict" -H 'Content-Type: application/json' -d @request.json)" = 400 ] || fail "$(cat out)"
holds out "series m1 has fewer rows than the 16 that the model reads"
stop
for kind in patchtst tcn gru; do
    run 0 "$banyan" train motions.yaml --set name=$kind --set model.kind=$kind --set train.steps=2
done
run 2 "$banyan" train motions.yaml --set model.kind=nbeats
holds err "model.kind nbeats only forecasts"
run 2 "$banyan" train motions.yaml --set model.kind=mlp
holds err "data.series needs a model that reads series"
run 2 "$banyan" train motions.yaml --set data.series=
holds err "models of series read numbers, and column 'motion' has names"

say "what is refused"
run 2 "$banyan" train shops.yaml --set task.quantiles='[0.5, 0.1]'
holds err "task.quantiles must be numbers between 0 and 1 that ascend"
run 2 "$banyan" train shops.yaml --set data.channels='[sold, sold]'
holds err "two fields of a forecast would be named 'sold'"
run 2 "$banyan" train shops.yaml --set data.valid_fraction=0.01
holds err "data.valid_fraction 0.01 holds out less than the 6 rows of a forecast"
run 2 "$banyan" train shops.yaml --set data.test_fraction=0.99
holds err "no series has 48 + 6 rows to train on (the last ones are held out by data.valid_fraction and data.test_fraction, which"
head -n 90 shops.csv >short.csv
run 1 "$banyan" predict runs/shops short.csv
holds err "series north has 45 rows, and the model reads 48; no other can be continued either"
run 1 "$banyan" train shops.yaml --set data.series=
holds err "row 2: the time in column 'when' is not after that of the row before it"
run 2 "$banyan" train shops.yaml --set model.context=190
holds err "no series has 190 + 6 rows to train on"
run 2 "$banyan" train shops.yaml --set 'data.channels=[sold]' --set 'data.known=[sold]'
holds err "column 'sold' is in data.channels and in data.known"
run 2 "$banyan" train shops.yaml --set model.kind=mlp
run 2 "$banyan" eval runs/none --test
