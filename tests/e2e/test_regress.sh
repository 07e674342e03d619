#!/bin/sh
# Regression on a table, from a config to predictions.
. "$(dirname "$0")/../support/shell.sh"

python3 - <<'END' || fail "no data"
import random
random.seed(7)
with open("rooms.csv", "w") as out:
    out.write("area,kind,floor,price\n")
    for i in range(400):
        area, kind, floor = random.uniform(20, 120), random.choice("old new".split()), random.randrange(5)
        price = 1000 * area + (30000 if kind == "new" else 0) + 2000 * floor + random.gauss(0, 3000)
        out.write(f"{'NA' if i % 40 == 7 else round(area, 2)},{kind},{floor},{price:.2f}\n")
END
cut -d, -f1-3 rooms.csv >rooms_new.csv
cat >rooms.yaml <<'END'
name: rooms
task: {kind: regress}
model: {kind: mlp, layers: 1, width: 32}
precision: {compute: f32}
data: {table: rooms.csv, target: price, category_columns: floor, valid_fraction: 0.2}
train: {steps: 300, batch: 32, micro_batch: 16, eval_every: 100, log_every: 100, threads: 1}
optimizer: {lr: 1e-2}
checkpoint: {every: 100, keep: 9}
END

say "train"
run 0 "$banyan" train rooms.yaml
holds out "320 rows for training, 80 held out: the last ones (data.split: last)"
! grep -q "the held-out examples" err || fail "$(cat err)"
holds out "contents   1 number: area (10 missing); 2 categories: kind (2 values), floor (5 values); target price, a number"
holds out "rows/s"
last=runs/rooms/checkpoints/step-00000300
exists "$last/encoding.json"
holds runs/rooms/events.jsonl '"rmse":'

say "drift: windows of the same rows, and of rows with another area"
exists "$last/drift_reference.json"
run 0 "$banyan" drift report runs/rooms --data rooms_new.csv --window 100
holds err "a feature drifts from a distance of 0.1 on"
run 0 "$banyan" drift report runs/rooms --data rooms_new.csv --window 100 --json
holds out '"requests":400,"windows":4,"alarms":0,"threshold":0.1,'
awk -F, -v OFS=, 'NR > 1 && $1 != "NA" { $1 *= 1.5 } { print }' rooms_new.csv >moved.csv
run 0 "$banyan" drift report runs/rooms --data moved.csv --window 200 --out report.html
holds out "with_drift	2"
[ "$(sed -n 3p out)" = "feature	alarm	psi	jensen_shannon	wasserstein	threshold	p	with_drift" ] || fail "$(cat out)"
[ "$(awk -F '\t' 'NR > 3 && $2 == "yes" && $6 == "0.1000" && $8 == 2 { print $1 }' out | sort | paste -s -d ' ')" = "area prediction" ] ||
    fail "$(cat out)"
grep -q "^kind	no	.*	-	0.1000	.*	0$" out || fail "$(cat out)"
[ "$(grep -c '<td class="yes">' report.html)" = 2 ] || fail "$(cat report.html)"
grep -q '<tr><td>prediction</td><td class="yes">' report.html || fail "$(cat report.html)"
grep -q '<tr><td>area</td><td class="yes">' report.html || fail "$(cat report.html)"
sed -e 's/^\(.*\),\(.*\),\(.*\)$/{"area": "\1", "kind": "\2", "floor": "\3"}/' \
    -e '1d; s/"\([0-9.]*\)", "kind"/\1, "kind"/; s/"NA"/null/' rooms_new.csv >rows.jsonl
run 0 "$banyan" drift report runs/rooms --data rows.jsonl --window 100 --json
holds out '"requests":400,"windows":4,"alarms":0,'
holds "$last/drift_reference.json" '"name":"prediction","kind":"number","rows":80,'
run 0 "$banyan" predict runs/rooms rooms_new.csv
cp out usual.jsonl
run 0 "$banyan" predict runs/rooms moved.csv
cp out shifted.jsonl
run 0 "$banyan" drift report runs/rooms --data usual.jsonl --window 200 --json
holds out '"requests":400,"windows":2,"alarms":0,'
run 0 "$banyan" drift report runs/rooms --data moved.csv --window 200 --json
sed 's/.*"name":"prediction".*"psi":\[\([^]]*\)\].*/\1/' out >of-rows
run 0 "$banyan" drift report runs/rooms --data shifted.jsonl --window 200 --json
sed 's/.*"name":"prediction".*"psi":\[\([^]]*\)\].*/\1/' out >of-lines
same of-rows of-lines
run 0 "$banyan" drift report runs/rooms --data shifted.jsonl --window 200 --out report.html
holds out "with_drift	2"
grep -q '<tr><td>prediction</td><td class="yes">' report.html || fail "$(cat report.html)"
run 2 "$banyan" drift report runs/rooms --data none.csv
holds err none.csv

say "standard input is read as the file of its format"
from_stream() { # from_stream FILE ARGUMENT...: the same with the file as with -
    data=$1
    shift
    run 0 "$banyan" "$@" "$data"
    mv out of-file
    run 0 sh -c 'data=$1 && shift && "$0" "$@" <"$data"' "$banyan" "$data" "$@" -
    same of-file out
}
from_stream moved.csv predict runs/rooms
from_stream moved.csv predict runs/rooms --json
from_stream moved.csv drift report runs/rooms --window 200 --json --data
from_stream shifted.jsonl drift report runs/rooms --window 200 --json --data
run 2 "$banyan" predict runs/rooms moved.csv --csv --json
if ls "${TMPDIR:-/tmp}"/standard-input-* 2>/dev/null; then fail "a file of standard input is left"; fi

say "drift: directories of tables, a column that is gone, and data of which nothing can be compared"
mkdir csvs parts lines nothing
for part in 0 1 2 3; do
    { head -n 1 moved.csv && tail -n +$((2 + 100 * part)) moved.csv | head -n 100; } >csvs/$part.csv
    python3 "$root/tests/support/write_parquet.py" csvs/$part.csv parts/$part.parquet
done
for data in csvs parts; do
    run 0 "$banyan" drift report runs/rooms --data $data --window 200 --json
    sed 's/.*"name":"prediction".*"psi":\[\([^]]*\)\].*/\1/' out >of-parts
    same of-rows of-parts
done
sed '1s/area/size/' rooms_new.csv >renamed.csv
python3 "$root/tests/support/write_parquet.py" renamed.csv renamed.parquet
sed 's/"area"/"size"/' rows.jsonl >renamed.jsonl
for data in renamed.csv renamed.parquet renamed.jsonl; do
    fails=$([ $data = renamed.jsonl ] && echo 0 || echo 1)
    run "$fails" "$banyan" drift report runs/rooms --data $data --window 200
    grep -q "^prediction	-	-	-	-	0.1000	-	0$" out || fail "$data: $(cat out)"
    [ "$fails" = 0 ] || holds err "nothing of 'prediction' could be compared; rows are not predicted: $data: there is no column 'area'"
    [ "$(awk -F '\t' 'NR > 3 && $2 == "yes" && $8 == 2 { print $1 }' out)" = area ] || fail "$data: $(cat out)"
done
nothing() { # nothing DATA MESSAGE
    run 1 "$banyan" drift report runs/rooms --data "$1"
    holds err "$2"
}
head -n 60 rooms_new.csv >few.csv
nothing few.csv "few.csv has 59 rows, and a window is compared from 100 on: give more of them, or --window 59"
run 0 "$banyan" drift report runs/rooms --data few.csv --window 59
: >empty.jsonl
nothing empty.jsonl "empty.jsonl has no rows"
nothing nothing "nothing holds no file that ends in .jsonl, "
echo '{"time":"2026-01-01T00:00:00Z","id":"pred-1","key":"","label":3,"rating":1,"index":0}' >lines/feedback-000001.jsonl
echo '{"time":"2026-01-01T00:00:00Z","id":"pred-2","row":{"x":1},"prediction":{"index":0,"value":2}}' >>lines/feedback-000001.jsonl
nothing lines "lines: no line is a row with a column that the model was trained on, or a prediction"
run 2 "$banyan" drift report runs/rooms

say "drift: a sorted file is compared as a whole, one missing cell changes nothing, and a text in a number is named"
{ head -n 1 rooms.csv && tail -n +2 rooms.csv | sort -t, -k4 -g; } >sorted.csv
run 0 "$banyan" drift report runs/rooms --data sorted.csv --json
holds out '"requests":400,"windows":1,"alarms":0,'
run 0 "$banyan" drift report runs/rooms --data sorted.csv --window 100 --json
holds out '"windows":4,"alarms":4,'
sed '3s/^[^,]*/#N\/A/' sorted.csv >one.csv
run 0 "$banyan" drift report runs/rooms --data one.csv
grep -q "^prediction	no	0" out || fail "$(cat out)"
sed '3s/^[^,]*/12km/' sorted.csv >odd.csv
run 1 "$banyan" drift report runs/rooms --data odd.csv
holds err "odd.csv:3: column 'area': '12km' is not a number"
run 0 python3 -c 'import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)' "$banyan" drift report runs/rooms --data sorted.csv
[ "$(tr -d '\r' <out | awk '{ if (length > n) n = length } END { print n }')" -le 80 ] || fail "wider than 80: $(cat out)"

say "the same rows in other spellings: a byte-order mark, semicolons and decimal commas, categories as 1.0"
run 0 "$banyan" predict runs/rooms rooms_new.csv
cp out usual
printf '\357\273\277' | cat - rooms_new.csv >marked.csv
tr , ';' <rooms_new.csv | tr . , >comma.csv
sed '2,$s/$/.0/' rooms_new.csv | tr , '\t' >spelled.tsv
for data in marked.csv comma.csv spelled.tsv; do
    run 0 "$banyan" predict runs/rooms $data
    same usual out
done
sed '7s/^[^,]*/1e39/' rooms_new.csv >large.csv
run 1 "$banyan" predict runs/rooms large.csv
holds err "large.csv:7: column 'area': 1e+39 is too large"
sed '3,4s|^[^,]*|12km|' sorted.csv >odd.csv
run 0 "$banyan" data stats odd.csv
holds out "cells are not numbers, first '12km' in line 3"
run 0 "$banyan" data stats rooms.csv --json
holds out '"rows":400,"columns":[{"name":"area","kind":"number","missing":10,'

say "the same bits with two threads, and resumed"
run 0 "$banyan" train rooms.yaml --set train.threads=2 --set name=two
same "$last/model.safetensors" runs/two/checkpoints/step-00000300/model.safetensors
same "$last/drift_reference.json" runs/two/checkpoints/step-00000300/drift_reference.json
rm -r runs/two/checkpoints/step-00000200 runs/two/checkpoints/step-00000300
run 0 "$banyan" train --resume runs/two
same "$last/model.safetensors" runs/two/checkpoints/step-00000300/model.safetensors
same "$last/optimizer.safetensors" runs/two/checkpoints/step-00000300/optimizer.safetensors
same "$last/drift_reference.json" runs/two/checkpoints/step-00000300/drift_reference.json

say "text of another encoding is an error wherever a table is read"
awk -F, -v OFS=, 'NR == 3 { $2 = "\351" } { print }' rooms.csv >latin.csv
for command in "train rooms.yaml --set name=torn --set data.table=latin.csv" "predict $last latin.csv" "data stats latin.csv" \
    "eval $last --data latin.csv"; do
    run 1 "$banyan" $command
    holds err "latin.csv:3: a value of column 'kind' is not UTF-8"
done
cut -d , -f 2- rooms.csv >lacks-feature.csv
cut -d , -f 1-3 rooms.csv >lacks-target.csv
for lacks in feature target; do # at fault is the file, whichever column it lacks
    run 1 "$banyan" eval "$last" --data "lacks-$lacks.csv"
    holds err "there is no column"
done

say "what a directory of CSV files lacks, and a column in other letters, is said"
mkdir csv
cp rooms.csv csv
run 1 "$banyan" train rooms.yaml --set data.table=csv
holds err "of its CSV files name one"
run 2 "$banyan" train rooms.yaml --set data.target=PRICE
holds err "did you mean 'price'?"

say "a model of text on a table is told what reads tables"
run 2 "$banyan" train rooms.yaml --set name=llama --set model.kind=llama
holds err "set model.kind to mlp"

say "a target of texts is for classify, also in Parquet"
run 1 "$banyan" train rooms.yaml --set name=texts --set data.target=kind
holds err "task.kind regress predicts numbers: set task.kind to classify"

say "damaged rows are an error, or left out: the bits of a table without them"
awk 'NR == 41 { print "50,old" }
    NR == 100 { print "\"50,old,1,90000" }
    NR == 200 { print "50,new,2,?" }
    NR == 300 { print "50,new,2,dear" }
    { print }' rooms.csv >torn.csv
run 1 "$banyan" train rooms.yaml --set name=torn --set data.table=torn.csv
holds err "torn.csv:41: the row has only 2 cells"
run 1 "$banyan" train rooms.yaml --set name=torn --set data.table=torn.csv --set data.corrupt=skip \
    --set data.corrupt_budget=3
holds err "4 of 404 rows are damaged, and data.corrupt_budget 3 allows 3; the most, 4, are in torn.csv, first at 41"
run 0 "$banyan" train rooms.yaml --set name=torn --set data.table=torn.csv --set data.corrupt=skip \
    --set data.corrupt_budget=0.01
holds err "left out: torn.csv, at 41: row number 39: the row has only 2 cells, but the header has 4"
holds err "at 202: row number 200: there is no value in 'price'"
holds err "'dear' is not a number"
run 2 "$banyan" train rooms.yaml --set name=torn --set data.target=prize
holds err "rooms.csv: there is no column 'prize'; did you mean 'price'? Its columns, separated by a comma: area, kind, floor, price"
same "$last/model.safetensors" runs/torn/checkpoints/step-00000300/model.safetensors

say "Parquet: parts with times of other units are one table, and so is what a model reads; what does not fit is named"
awk -F, -v OFS=, 'NR == 1 { print "at", "area", "price" } NR > 1 { print 1700000000 + NR * 90061, NR % 7, NR % 7 + NR / 100 }' rooms.csv >timed.csv
timed() { # timed DIRECTORY TYPE...: the table with times of these types, as parts, or one file
    rm -rf "$1" && mkdir "$1" && to=$1 && shift
    for type; do python3 "$root/tests/support/write_parquet.py" timed.csv "$to/$type.parquet" at="$type"; done
}
timed units us ns ms
run 0 "$banyan" data stats units --json
grep -o '"least":[^,]*,"mean":[^,]*,"most":[^,}]*' out | head -n 1 >of-units
timed unit ms
run 0 "$banyan" data stats unit --json
grep -o '"least":[^,]*,"mean":[^,]*,"most":[^,}]*' out | head -n 1 | same - of-units
timed zones us ns+utc
run 1 "$banyan" data stats zones
holds err "zones/us.parquet: column 'at' has times in us local, but times in ns utc in zones/ns+utc.parquet"
timed plain us
python3 "$root/tests/support/write_parquet.py" timed.csv plain/a.parquet
run 1 "$banyan" data stats plain
holds err "plain/us.parquet: column 'at' has times in us local, but plain numbers in plain/a.parquet"
timed lone us ns ms us+utc
sed -e 's/^name:.*/name: timed/' -e 's/table: rooms.csv/table: lone\/us.parquet/' -e 's/category_columns: floor, //' \
    -e 's/steps: 300/steps: 4/' -e 's/every: 100/every: 4/g' rooms.yaml >timed.yaml
run 0 "$banyan" train timed.yaml --quiet
run 0 "$banyan" predict runs/timed lone/us.parquet
cp out usual
for unit in ns ms; do
    run 0 "$banyan" predict runs/timed lone/$unit.parquet
    same usual out
done
run 1 "$banyan" predict runs/timed lone/us+utc.parquet
holds err "column 'at' has times in us utc, but times in us local were learned"
python3 "$root/tests/support/write_parquet.py" rooms.csv list.parquet kind=list
run 1 "$banyan" train rooms.yaml --set name=list --set data.table=list.parquet
holds err "list.parquet: column 'kind' cannot be read: it is a list or a map"
run 1 "$banyan" pack list.parquet --field kind --vocab 300 --output packed
holds err "list.parquet: column 'kind' cannot be read: it is a list or a map"
run 0 "$banyan" train timed.yaml --quiet --set name=list --set data.table=list.parquet --set data.ignore=kind
{ printf PARE && tail -c +5 lone/us.parquet | head -c -4 && printf PARE; } >secret.parquet
run 1 "$banyan" predict runs/timed secret.parquet
holds err "secret.parquet: an encrypted Parquet file"

say "metrics are those of the predictions"
run 0 "$banyan" eval runs/rooms --json
cp out eval.json
awk "BEGIN { exit !($(field r2 <eval.json) > 0.85) }" || fail "$(cat eval.json)"
run 0 "$banyan" predict runs/rooms rooms_new.csv
[ "$(wc -l <out)" = 400 ] || fail "$(wc -l <out) lines"
python3 - out eval.json <<'END' || fail "metrics: $(cat eval.json)"
import csv, json, sys
value = [json.loads(line) for line in open(sys.argv[1])]
assert [v["index"] for v in value] == list(range(400))
price = [float(row["price"]) for row in csv.DictReader(open("rooms.csv"))]
pairs = [(v["value"], p) for v, p in zip(value, price)][-80:]
e = [a - b for a, b in pairs]
mean = sum(b for _, b in pairs) / 80
got = json.loads(open(sys.argv[2]).read())
want = {"rmse": (sum(x * x for x in e) / 80) ** 0.5, "mae": sum(map(abs, e)) / 80,
        "r2": 1 - sum(x * x for x in e) / sum((b - mean) ** 2 for _, b in pairs), "rows": 80}
sys.exit(any(abs(got[k] - v) > 1e-4 * abs(v) for k, v in want.items()))
END
run 0 "$banyan" predict runs/rooms rooms_new.csv --csv
[ "$(head -n 1 out)" = index,value ] || fail "$(head -n 1 out)"

say "weights without their run's config are evaluated with the columns and the target that they were trained with"
run 0 "$banyan" eval runs/rooms --data rooms.csv --json
loss=$(field valid_loss <out)
run 0 "$banyan" compress runs/rooms --method int8 --out rooms8 --eval rooms.csv --json
near "$(field loss_before <out)" "$loss" 1e-6
after=$(field loss_after <out)
run 0 "$banyan" eval rooms8 --data rooms.csv --json
near "$(field valid_loss <out)" "$after" 1e-6

say "smooth L1, another file to evaluate on, bf16"
head -n 100 rooms.csv >few.csv
run 0 "$banyan" train rooms.yaml --set task.loss=smooth_l1 --set task.beta=0.5 --set data.valid_table=few.csv \
    --set precision.compute=bf16 --set name=smooth
holds out "400 rows for training, 99 held out"
run 0 "$banyan" eval runs/smooth --data rooms.csv --json
[ "$(field rows <out)" = 400 ] || fail "$(cat out)"

say "several targets: metrics and predictions of each, in the order in which they are named"
awk -F, -v OFS=, '{ print $0, NR == 1 ? "\"rent, cold\"" : $4 / 250 - 40 * $3 }' rooms.csv >both.csv
cut -d, -f1-3 both.csv >both_new.csv
both() { # both NAME ARGUMENT...: trains on two targets
    name=$1
    shift
    run 0 "$banyan" train rooms.yaml --set data.table=both.csv --set "name=$name" --set train.steps=80 \
        --set checkpoint.every=40 --set train.eval_every=40 --set 'data.target=["rent, cold", price]' "$@"
}
both both
holds out "2 categories: kind (2 values), floor (5 values); targets rent, cold, price, numbers"
holds runs/both/config.yaml 'target: ["rent, cold", price]'
holds runs/rooms/config.yaml 'target: price'
holds runs/both/events.jsonl '"rmse_rent, cold":'
both threads --set train.threads=2
rm -r runs/threads/checkpoints/step-00000080
run 0 "$banyan" train --resume runs/threads
same runs/both/checkpoints/step-00000080/model.safetensors runs/threads/checkpoints/step-00000080/model.safetensors
run 0 "$banyan" eval runs/both --json
cp out eval.json
run 0 "$banyan" predict runs/both both_new.csv
cp out usual.jsonl
run 0 "$banyan" predict runs/both both_new.csv --csv
[ "$(head -n 1 out)" = 'index,"rent, cold",price' ] || fail "$(head -n 1 out)"
python3 - usual.jsonl out eval.json <<'END' || fail "metrics: $(cat eval.json)"
import csv, json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
table = list(csv.DictReader(open(sys.argv[2])))
got = json.loads(open(sys.argv[3]).read())
truth = list(csv.DictReader(open("both.csv")))
want, each = {"rows": 80}, {"rmse": [], "mae": [], "r2": []}
for name in ("rent, cold", "price"):
    assert [float(row[name]) for row in table] == [line[name] for line in lines]
    y = [float(row[name]) for row in truth][-80:]
    e = [line[name] - b for line, b in zip(lines[-80:], y)]
    mean = sum(y) / 80
    for key, value in (("rmse", (sum(x * x for x in e) / 80) ** 0.5), ("mae", sum(map(abs, e)) / 80),
                       ("r2", 1 - sum(x * x for x in e) / sum((b - mean) ** 2 for b in y))):
        want[f"{key}_{name}"] = value
        each[key].append(value)
want.update({key: sum(values) / 2 for key, values in each.items()})
assert want["r2"] > 0.8, want
sys.exit(any(abs(got[k] - v) > 1e-4 * abs(v) for k, v in want.items()))
END
run 0 "$banyan" eval runs/both --data both.csv
holds out "rmse_rent, cold "
run 0 "$banyan" drift report runs/both --data both.csv --window 200 --json
holds out '"alarms":0,'
awk -F, -v OFS=, 'NR > 1 && $1 != "NA" { $1 *= 1.5 } { print }' both_new.csv >moved.csv
run 0 "$banyan" predict runs/both moved.csv
cp out shifted.jsonl
for data in moved.csv shifted.jsonl; do
    run 0 "$banyan" drift report runs/both --data $data --window 200 --json
    for name in "rent, cold" price; do
        sed "s/.*\"name\":\"prediction_$name\".*\"psi\":\[\([^]]*\)\].*/\1/" out >"$data.$name"
        [ "$(wc -c <"$data.$name")" -lt 100 ] || fail "there is no drift of $name"
    done
done
same "moved.csv.rent, cold" "shifted.jsonl.rent, cold"
same moved.csv.price shifted.jsonl.price
run 2 "$banyan" train rooms.yaml --set data.table=both.csv --set 'data.target=[price, area, price]'
holds err "data.target names 'price' twice"
run 2 "$banyan" train rooms.yaml --set data.table=both.csv --set 'data.target=[price, area]' --set task.kind=classify
holds err "task.kind classify predicts one"
run 1 "$banyan" train rooms.yaml --set data.table=both.csv --set 'data.target=[price, kind]'
holds err "data.target 'kind' is a column of texts"
run 2 "$banyan" train rooms.yaml --set data.table=both.csv --set 'data.target=[price, "rent, cold"]' --set model.outputs=3
holds err "model.outputs is 3, but there are 2 columns to predict"

say "held-out rows that are unlike the others, since the file is sorted"
{ head -n 1 rooms.csv && tail -n +2 rooms.csv | sort -t , -k 4 -g; } >sorted.csv
run 0 "$banyan" train rooms.yaml --set data.table=sorted.csv --set name=sorted --set train.steps=1
holds err "the held-out examples, the last ones, differ from the others: the mean of 'price' is "
holds err "data.split=random"
run 0 "$banyan" train rooms.yaml --set data.table=sorted.csv --set name=drawn --set train.steps=1 --set data.split=random
holds out "80 held out: random ones (data.split: random)"
! grep -q "the held-out examples" err || fail "$(cat err)"

say "parts by lists of rows: that of the last ones is the usual one"
seq 320 399 >held.txt
seq 0 319 >kept.txt
short="--set data.ignore=[] --set train.steps=4 --set checkpoint.every=4"
# shellcheck disable=SC2086
run 0 "$banyan" train rooms.yaml $short --set name=usual
# shellcheck disable=SC2086
run 0 "$banyan" train rooms.yaml $short --set name=listed --set data.valid_rows=held.txt --set data.train_rows=kept.txt
holds out "320 rows for training, 80 held out: those of data.valid_rows"
same runs/usual/checkpoints/step-00000004/model.safetensors runs/listed/checkpoints/step-00000004/model.safetensors
seq 100 399 >kept.txt
run 2 "$banyan" train rooms.yaml --set data.valid_rows=held.txt --set data.train_rows=kept.txt
holds err "example 320 is in both kept.txt and held.txt"
run 2 "$banyan" train rooms.yaml --set data.train_rows=kept.txt
holds err "set data.valid_rows"

say "what does not fit is refused"
run 2 "$banyan" train rooms.yaml --set data.target=
holds err "data.target=COLUMN"
run 2 "$banyan" train rooms.yaml --set model.kind=gpt2
run 2 "$banyan" train --resume runs/two --set data.valid_fraction=0.3
run 2 "$banyan" train --resume runs/two --set data.target=floor --set data.category_columns=[]
holds err "was trained with data.target price"
run 1 "$banyan" predict runs/rooms rooms.yaml

say "what a command line probably meant"
hint() {
    meant_code=$1
    meant_text=$2
    shift 2
    run "$meant_code" "$banyan" "$@"
    holds err "$meant_text"
}
named="there is a run runs/rooms: name it so, with its directory"
for command in eval train info plot serve "runs show" "train --resume"; do
    # shellcheck disable=SC2086
    hint 2 "$named" $command rooms
done
hint 2 "$named" runs compare rooms rooms8
! "$banyan" eval none 2>err || fail "a run that is not there was evaluated"
! grep -q "there is a run" err || fail "$(cat err)"
! "$banyan" train rooms.yaml --set name=rooms --set train.stps=3 2>err || fail "an unknown key was taken"
! grep -q "there is a run" err || fail "$(cat err)"
hint 2 "$named" train rooms.yaml --set model.from=rooms --set name=again
hint 2 "write banyan runs ls" runs list
hint 2 "write banyan runs delete RUN... --yes" runs rm runs/rooms
hint 2 "each setting needs a --set of its own: --set train.batch=2" train rooms.yaml --set train.steps=1 train.batch=2
hint 2 "banyan train --resume runs/rooms" train runs/rooms --resume
hint 2 "without 'banyan' before it" launch -n 2 banyan train rooms.yaml
hint 2 "model.kind mlp reads rows of a table and writes no text: \`banyan predict\` is for it" generate runs/rooms --prompt x
hint 2 "banyan generate runs/rooms --prompt \"a text\"" generate runs/rooms "a text"
hint 2 "did you mean \"fp16\"?" train rooms.yaml --set precision.compute=Float16
hint 2 "did you mean \"gpt2\"?" train rooms.yaml --set model.kind=GPT2
hint 2 "the model is an argument: banyan serve runs/NAME" serve --model x
hint 2 "did you mean \"model.kind\"?" train rooms.yaml --set model.type=mlp
run 0 "$banyan" help train
"$banyan" train --help >help && same help out
