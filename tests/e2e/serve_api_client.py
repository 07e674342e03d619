"""A client of the routes of a server: serve_api_client.py CHECK URL. `files` makes what is trained on."""

import array
import base64
import json
import math
import random
import re
import struct
import sys
import threading
import time
import urllib.error
import urllib.request
import zlib

url = sys.argv[2] if len(sys.argv) > 2 else ""
SIZE = 8  # that the model of images reads
TALL, WIDE = 12, 16  # of the images


ANSWERS = [f"/v1/{route}" for route in ("completions", "chat/completions", "responses", "embeddings", "predict")]


def call(path, body=None, kind="application/json", method=None):
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": kind}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            said = json.loads(answer.read() or b"{}")
            # Who answers is named.
            if data is not None and path in ANSWERS and not said.get("background"):
                assert answer.headers["X-Banyan-Run"] and answer.headers["X-Banyan-Version"], (path, answer.headers)
            return answer.status, said
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def npy(path, kind, shape, data):
    head = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data)


def rows(count, seed):
    """Rows with a number, a category and cells that are missing; the price follows from them."""
    r = random.Random(seed)
    for _ in range(count):
        rooms, place = r.uniform(1, 9), r.choice(["coast", 'in"land', "hill, high"])
        yield {
            "rooms": None if r.random() < 0.1 else rooms,
            "place": None if r.random() < 0.1 else place,
            "age": r.randrange(50),
            "price": rooms * 10 + len(place),
        }


def pictures(count, seed):
    r = random.Random(seed)
    return [bytes(r.randrange(256) for _ in range(TALL * WIDE)) for _ in range(count)]


def write_csv(path, table):
    def cell(value):
        return "" if value is None else '"' + value.replace('"', '""') + '"' if isinstance(value, str) else repr(value)

    with open(path, "w") as f:
        f.write("rooms,place,age,price\n")
        for row in table:
            f.write(",".join(cell(row[k]) for k in ("rooms", "place", "age", "price")) + "\n")


def png(pixels, height=TALL, width=WIDE):
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    lines = b"".join(b"\x00" + pixels[y * width : (y + 1) * width] for y in range(height))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(lines))
        + chunk(b"IEND", b"")
    )


def check_files():
    write_csv("table.csv", list(rows(100, 1)))
    write_csv("new.csv", list(rows(50, 2)))
    train, new = pictures(64, 3), pictures(20, 4)
    npy("images.npy", "|u1", (64, TALL, WIDE), b"".join(train))
    npy("labels.npy", "|u1", (64,), bytes(i % 3 for i in range(64)))
    npy("new.npy", "|u1", (20, TALL, WIDE), b"".join(new))
    with open("new.png", "wb") as f:
        f.write(png(new[0]))


def lines(path):
    with open(path) as f:
        return [json.loads(line) for line in f]


def check_models():
    wanted = {"tiny", "talk", "adapted", "ended", "houses", "digits"}
    end = time.time() + 300
    while {m["id"] for m in call("/v1/models")[1]["data"]} != wanted:
        assert time.time() < end, call("/v1/models")
        time.sleep(0.05)
    models = {m["id"]: m for m in call("/v1/models")[1]["data"]}
    assert all(abs(m["created"] - time.time()) < 3600 for m in models.values()), models
    assert models["talk"]["info"]["chat"] and not models["tiny"]["info"]["chat"]
    assert models["houses"]["info"]["columns"] == [
        {"name": "rooms", "kind": "number"},
        {"name": "age", "kind": "number"},
        {"name": "place", "kind": "category"},
    ]
    assert models["digits"]["info"]["image"] == [1, SIZE, SIZE]
    # Each name has its own weights.
    with open("adapted.text") as f:
        adapted = f.read().rstrip("\n")
    texts = {
        m: call("/v1/completions", {"model": m, "prompt": "apple ", "max_tokens": 20, "temperature": 0})[1]["choices"][
            0
        ]["text"]
        for m in ("tiny", "talk", "adapted")
    }
    assert texts["tiny"] == texts["talk"] and texts["adapted"] == adapted != texts["talk"], (texts, adapted)
    # A text ends where generation_config.json says, with a template for conversations or without.
    asked = {"prompt": "apple ", "max_tokens": 8, "temperature": 0}
    for model, more, reason in (("ended", {}, "stop"), ("ended", {"ignore_eos": True}, "length"), ("talk", {}, "length")):
        choice = call("/v1/completions", {"model": model, **asked, **more})[1]["choices"][0]
        assert choice["finish_reason"] == reason and (choice["text"] == "") == (reason == "stop"), (model, choice)
    # A model is asked for what it does.
    for path, body in (("/v1/completions", {"prompt": "a"}), ("/v1/embeddings", {"input": "a"})):
        assert call(path, {"model": "houses", **body})[0] == 400
    assert call("/v1/predict", {"model": "tiny", "rows": [[1]]})[0] == 400
    assert "'rows' is an empty list" in call("/v1/predict", {"model": "houses", "rows": []})[1]["error"]["message"]


def check_embeddings():
    with open("texts") as f:
        texts = f.read().splitlines()
    wanted = [line["embedding"] for line in lines("vectors.lines")]

    def ask(**more):
        return call("/v1/embeddings", {"model": "tiny", "input": texts, **more})

    status, answer = ask()
    assert status == 200 and answer["object"] == "list", answer
    got = [d["embedding"] for d in answer["data"]]
    assert [d["index"] for d in answer["data"]] == [0, 1, 2]
    assert all(abs(a - b) < 1e-6 for x, y in zip(got, wanted) for a, b in zip(x, y)) and len(got) == len(wanted)
    assert answer["usage"] == {"prompt_tokens": sum(map(len, texts)), "total_tokens": sum(map(len, texts))}, answer[
        "usage"
    ]
    packed = ask(encoding_format="base64")[1]["data"]
    for d, vector in zip(packed, got):
        assert list(array.array("f", base64.b64decode(d["embedding"]))) == [
            struct.unpack("f", struct.pack("f", x))[0] for x in vector
        ]
    assert ask(dimensions=64)[0] == 200 and ask(dimensions=32)[1]["error"]["param"] == "dimensions"
    one = ask(input=texts[0])[1]["data"]
    assert all(abs(a - b) < 1e-6 for a, b in zip(one[0]["embedding"], got[0])) and len(one) == 1
    assert ask(input=[[1, 2, 3], [4]])[1]["usage"]["prompt_tokens"] == 4
    assert ask(input=[1, 2, 3])[1]["usage"]["prompt_tokens"] == 3
    for wrong in (
        {"input": []},
        {"input": ""},
        {"input": [99999]},
        {"input": [["a"]]},
        {"input": "a" * 300},
        {"input": "a" * 6000000},
        {"encoding_format": "x"},
        {"inputs": 1},
    ):
        assert ask(**wrong)[0] == 400, wrong
    status, task = call("/v1/tasks", {"endpoint": "/v1/embeddings", "body": {"model": "tiny", "input": texts}})
    assert status == 202, task
    while call("/v1/tasks/" + task["id"])[1]["status"] not in ("completed", "failed"):
        time.sleep(0.02)
    assert call("/v1/tasks/" + task["id"])[1]["result"]["data"] == answer["data"]


def same_predictions(got, wanted):
    # Nine digits are what `banyan predict` prints: equal ones are equal floats.
    assert len(got) == len(wanted), (len(got), len(wanted))
    for a, b in zip(got, wanted):
        assert a.keys() == b.keys() and all(a[k] == b[k] for k in a), (a, b)


def check_predict():
    new = [{k: v for k, v in row.items() if k != "price"} for row in rows(50, 2)]
    wanted = lines("houses.lines")
    status, answer = call("/v1/predict", {"model": "houses", "rows": new})
    assert status == 200, answer
    same_predictions(answer["predictions"], wanted)
    # The rows are counted for drift; the broker tells so four times a second.
    counted = 'banyan_drift_window_requests{model="houses",'
    end = time.time() + 300
    while True:
        with urllib.request.urlopen(url + "/metrics") as page:
            found = [line for line in page.read().decode().splitlines() if line.startswith(counted)]
        if found and found[0].endswith(" 50"):
            break
        assert time.time() < end, found
        time.sleep(0.05)
    # What is predicted is compared with the predictions of the held-out rows, too.
    for count, scale, drifted in ((450, 1, 0), (500, 9, 1)):
        asked = [
            {"rooms": row["rooms"] and row["rooms"] * scale, "age": row["age"] * scale, "place": row["place"]}
            for row in rows(count, 7)
        ]
        assert call("/v1/predict", {"model": "houses", "rows": asked})[0] == 200
        wanted_state = [drifted + 1.0, float(drifted)]
        end = time.time() + 300
        while True:
            with urllib.request.urlopen(url + "/metrics") as page:
                text = page.read().decode()
            found = [
                re.findall(r"^banyan_drift_" + what + r"\} (\S+)$", text, re.M)
                for what in (
                    r'windows_total\{model="houses",[^}]*',
                    r'detected\{model="houses",[^}]*feature="prediction"',
                )
            ]
            state = [float(v[0]) if v else 0.0 for v in found]
            if state == wanted_state:
                break
            assert time.time() < end, (state, wanted_state)
            time.sleep(0.05)
    # Lists in the order of columns, and many clients at a time, whose rows share batches.
    got = [None] * len(new)

    def ask(i):
        row = new[i]
        got[i] = call("/v1/predict", {"model": "houses", "rows": [[row["rooms"], row["age"], row["place"]]]})[1][
            "predictions"
        ][0]

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(new))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    same_predictions([{**p, "index": i} for i, p in enumerate(got)], wanted)
    counts, end = {"batch_examples": 0}, time.time() + 300
    while counts["batch_examples"] < 1050:
        assert time.time() < end, counts
        with urllib.request.urlopen(url + "/metrics") as page:
            counts = {
                m: float(v)
                for m, v in re.findall(
                    r'^banyan_(batches|batch_examples)_total\{model="houses"[^}]*\} (\S+)$', page.read().decode(), re.M
                )
            }
    assert 0 < counts["batches"] < counts["batch_examples"], counts
    for wrong in ([], [{"room": 1}], [{"rooms": "many"}], [[1]], [3], [{"rooms": True}], [{"place": "a\0b"}]):
        status, error = call("/v1/predict", {"model": "houses", "rows": wrong})
        assert status == 400, (wrong, error)
    assert (
        "did you mean 'rooms'" in call("/v1/predict", {"model": "houses", "rows": [{"room": 1}]})[1]["error"]["message"]
    )
    images, wanted = [png(p) for p in pictures(20, 4)], lines("digits.lines")
    status, answer = call("/v1/predict", {"model": "digits", "images": [base64.b64encode(i).decode() for i in images]})
    assert status == 200, answer
    same_predictions(answer["predictions"], wanted)
    # An image as the body, and as files of a form.
    same_predictions(call("/v1/predict?model=digits", images[0], "image/png")[1]["predictions"], wanted[:1])
    form = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\ndigits\r\n'
    for image in images[:3]:
        form += (
            b'--b\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n'
            + image
            + b"\r\n"
        )
    same_predictions(
        call("/v1/predict", form + b"--b--\r\n", "multipart/form-data; boundary=b")[1]["predictions"], wanted[:3]
    )
    damaged = images[0][:60] + b"x" + images[0][61:]
    for image in (b"", b"GIF89a", images[0][:50], damaged, png(b"", 60000, 60000)):
        assert call("/v1/predict?model=digits", image, "image/png")[0] == 400, image
    for body, kind in (
        (images[0], "image/png"),
        (form, "multipart/form-data; boundary=b"),
        (form, "multipart/form-data"),
        (b"{}", "text/plain"),
    ):
        assert call("/v1/predict", body, kind)[0] == 400, kind
    # Pixels of a request are counted by the heads of its images, before any is decoded: none of these can be.
    large = [base64.b64encode(png(b"", 4096, 4096)).decode()] * 5
    refused = call("/v1/predict", {"model": "digits", "images": large})
    assert refused[0] == 400 and "have 83886080 pixels together; 67108864 are decoded" in refused[1]["error"]["message"], refused
    refused = call("/v1/predict", {"model": "digits", "images": large[1:]})
    assert refused[0] == 400 and "together" not in refused[1]["error"]["message"], refused
    assert call("/v1/predict", {"model": "digits", "images": ["%"]})[0] == 400
    status, task = call("/v1/tasks", {"endpoint": "/v1/predict", "body": {"model": "houses", "rows": new[:2]}})
    while call("/v1/tasks/" + task["id"])[1]["status"] not in ("completed", "failed"):
        time.sleep(0.02)
    same_predictions(call("/v1/tasks/" + task["id"])[1]["result"]["predictions"], lines("houses.lines")[:2])


def metrics(name):
    """The values of a metric, by the text of its labels."""
    with urllib.request.urlopen(url + "/metrics") as page:
        return {m: float(v) for m, v in re.findall("^" + name + r"(?:\{(.*)\})? (\S+)$", page.read().decode(), re.M)}


def kept(id, count):
    """The lines of the payload log with this id."""
    end = time.time() + 300
    while True:
        with open("payload/payload-000001.jsonl", encoding="utf-8") as f:
            found = [json.loads(line) for line in f if line.endswith("\n")]
        found = [line for line in found if line["id"] == id]
        if len(found) == count:
            return found
        assert time.time() < end, found
        time.sleep(0.05)


def check_feedback():
    new = [{k: v for k, v in row.items() if k != "price"} for row in rows(50, 2)]
    houses = call("/v1/predict", {"model": "houses", "rows": new})[1]
    cells = call("/v1/predict", {"model": "houses", "rows": [[row["rooms"], row["age"], row["place"]] for row in new[:2]]})[1]
    images = [base64.b64encode(png(p)).decode() for p in pictures(20, 4)]
    digits = call("/v1/predict", {"model": "digits", "images": images[:2]})[1]
    one = call("/v1/predict", {"model": "digits", "images": images[:1]})[1]
    lines = kept(houses["id"], 50)
    assert [(line["row"], line["index"]) for line in lines] == [(row, i) for i, row in enumerate(new)], lines
    assert all(abs(line["prediction"]["value"] - p["value"]) < 1e-6 for line, p in zip(lines, houses["predictions"]))
    assert [line["row"] for line in kept(cells["id"], 2)] == new[:2]
    assert [line["prediction"]["label"] for line in kept(digits["id"], 2)] == [p["label"] for p in digits["predictions"]]
    with open("rows.jsonl", "w") as f:
        f.writelines(json.dumps(line) + "\n" for line in lines)
    status, answer = call("/v1/embeddings", {"model": "tiny", "input": ["apple", "bay"]})
    assert status == 200, answer
    end = time.time() + 300
    while True:
        with open("payload/payload-000001.jsonl", encoding="utf-8") as f:
            texts = [json.loads(line).get("text") for line in f if '"id":"embd-' in line]
        if texts[-2:] == ["apple", "bay"]:
            break
        assert time.time() < end, texts
        time.sleep(0.05)

    def say(id, **more):
        return call("/v1/feedback", {"id": id, **more})[0]

    # The truth is 3 more than what was predicted for the first house, and 1 less for the second.
    for i, away in ((0, 3), (1, -1)):
        assert say(houses["id"], index=i, label=houses["predictions"][i]["value"] + away) == 200
    assert say(one["id"], label=int(one["predictions"][0]["label"])) == 200
    for i in range(2):
        assert say(digits["id"], index=i, label="3" if i else digits["predictions"][0]["label"]) == 200
    unmatched = [("none", {"label": 1}), (digits["id"], {"label": "1"}), (houses["id"], {"label": "dear", "index": 2}),
                 (one["id"], {"label": "1"})]
    for id, more in unmatched:
        assert say(id, **more) == 200, more
    for rating in (1, 0.5):
        assert say(houses["id"], rating=rating) == 200
    for wrong in ({"rating": 1e308}, {"rating": -1e7}, {"label": 1e300}, {"label": 1, "index": -1}):
        assert say("x", **wrong) == 400, wrong

    def of(name, model):
        return [v for labels, v in metrics("banyan_feedback_" + name).items() if f'model="{model}"' in labels]

    assert of("correct_total", "digits") == [2.0] and of("wrong_total", "digits") == [1.0]
    assert of("errors_total", "houses") == [2.0] and of("correct_total", "houses") == []
    assert abs(of("absolute_error_total", "houses")[0] - 4) < 1e-4 and abs(of("squared_error_total", "houses")[0] - 10) < 1e-3
    assert of("version_rating_mean", "houses") == [0.75] and of("version_rating_mean", "digits") == []
    assert metrics("banyan_feedback_unmatched_total") == {
        **{f'reason="{r}"': 1.0 for r in ("unknown_id", "no_prediction", "other_type", "repeated")},
        **{f'reason="{r}"': 0.0 for r in ("other_key", "no_broker")},
    }


def check_probabilities():
    """The most probable tokens: the chosen one is among them where it is greedy, and all of them sum to 1."""
    ask = {"model": "tiny", "prompt": "apple", "max_tokens": 6, "temperature": 0}
    choice = call("/v1/completions", {**ask, "logprobs": 20})[1]["choices"][0]
    p = choice["logprobs"]
    assert "".join(p["tokens"]) == choice["text"] and p["text_offset"] == list(range(6)), p
    for token, chosen, top in zip(p["tokens"], p["token_logprobs"], p["top_logprobs"]):
        values = list(top.values())
        assert (
            max(top, key=top.get) == token
            and top[token] == chosen == max(values)
            and values == sorted(values, reverse=True)
        )
        assert 0.5 < sum(map(math.exp, values)) < 1 + 1e-5
    sampled = call("/v1/completions", {**ask, "temperature": 1, "seed": 3, "logprobs": 3, "n": 2})[1]["choices"]
    alone = call("/v1/completions", {**ask, "temperature": 1, "seed": 4, "logprobs": 3})[1]["choices"][0]
    assert sampled[1]["logprobs"] == alone["logprobs"] and all(len(t) == 3 for t in alone["logprobs"]["top_logprobs"])
    chat = {
        "model": "talk",
        "messages": [{"role": "user", "content": "apple"}],
        "max_completion_tokens": 4,
        "temperature": 0,
    }
    content = call("/v1/chat/completions", {**chat, "logprobs": True, "top_logprobs": 2})[1]["choices"][0]["logprobs"][
        "content"
    ]
    assert len(content) == 4
    for token in content:
        assert (
            len(token["top_logprobs"]) == 2
            and token["top_logprobs"][0]["token"] == token["token"]
            and bytes(token["bytes"]).decode() == token["token"]
        )
    assert call("/v1/chat/completions", {**chat, "top_logprobs": 2})[0] == 400
    assert call("/v1/completions", {**ask, "logprobs": 21})[0] == 400


def check_parts():
    """A content in parts is the text of them on lines for a template that adds texts."""
    path = "/v1/chat/completions"

    def ask(content, **more):
        message = {"role": "user", "content": content, **more}
        return call(path, {"model": "talk", "messages": [message], "max_tokens": 5, "seed": 3})

    parts = [{"type": "text", "text": "apple"}, {"type": "text", "text": "bay"}]
    (status, listed), (_, plain) = ask(parts), ask("apple\nbay")
    assert status == 200 and listed["choices"] == plain["choices"] and listed["usage"] == plain["usage"], listed
    # A member that is null is none for the template, which says so of each that it gets.
    for more in ({"name": None}, {"tool_calls": None}, {"refusal": None, "function_call": None, "audio": None}):
        assert ask("bay", **more)[1]["usage"] == ask("bay")[1]["usage"], more
    nothing = ask("", role="assistant")[1]["usage"]
    for more in ({}, {"tool_calls": None}, {"tool_calls": [], "refusal": None, "name": None}):
        assert ask(None, role="assistant", **more)[1]["usage"] == nothing, more
    # Variables of the template.
    said = {"messages": [{"role": "user", "content": "apple"}], "max_tokens": 1}
    lengths = [
        call(path, {"model": "talk", **said, "chat_template_kwargs": more})[1]["usage"]["prompt_tokens"]
        for more in (None, {"more": "bay"})
    ]
    assert lengths[1] == lengths[0] + 3, lengths
    # What is wrong with the tools is the client's fault.
    for tools in ("x", 5, {}):
        status, refused = call(
            path, {"model": "talk", "messages": [{"role": "user", "content": "a"}], "tools": tools, "max_tokens": 1}
        )
        assert status == 400 and refused["error"]["message"] == "'tools' must be a list", refused
    status, refused = ask([*parts, {"type": "image_url", "image_url": {"url": "data:,"}}])
    assert status == 400 and "message 0: a part of a 'content' is of type 'image_url'" in refused["error"]["message"]


def check_encoding():
    """While long conversations and heavy schemas are read, streams of others go on."""

    def schema(depth):
        return {"type": "object", "properties": {f"k{i}": schema(depth - 1) for i in range(4)} if depth else {}}

    def heavy(i):
        call(
            "/v1/chat/completions",
            {
                "model": "talk",
                "messages": (
                    [{"role": "user", "content": "a" * 3000000}] if i % 2 else [{"role": "user", "content": "a"}]
                ),
                "max_tokens": 1,
                "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema(4)}},
            },
        )

    body = {"model": "talk", "prompt": "apple", "max_tokens": 200, "seed": 3}
    wanted = call("/v1/completions", body)[1]["choices"]
    threads = [threading.Thread(target=heavy, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    assert call("/v1/completions", body)[1]["choices"] == wanted
    for thread in threads:
        thread.join()
    assert call("/health/ready")[1]["workers"] == 6


def check_jpeg():
    """Images as pillow writes and reads them; the server's pixels are pillow's."""
    import io

    from PIL import Image

    def predict(images):
        status, answer = call(
            "/v1/predict", {"model": "digits", "images": [base64.b64encode(i).decode() for i in images]}
        )
        assert status == 200, answer
        return answer["predictions"]

    for form, mode in (("JPEG", "L"), ("PNG", "L"), ("PNG", "1"), ("PNG", "P")):
        files, pixels, resized = [], [], []
        for picture in pictures(6, 5):
            out = io.BytesIO()
            image = Image.frombytes("L", (WIDE, TALL), picture).convert(mode)
            image.save(out, form, **({"quality": 90, "progressive": True} if form == "JPEG" else {}))
            files.append(out.getvalue())
            grey = Image.open(out).convert("L")
            pixels.append(png(grey.tobytes()))
            # What transformers make of it: resized to 8, and its center.
            middle = grey.resize((10, 8), Image.Resampling.BILINEAR).crop((1, 0, 9, 8))
            resized.append(png(middle.tobytes(), SIZE, SIZE))
        assert predict(files) == predict(pixels) == predict(resized), (form, mode)
    jpeg = io.BytesIO()
    Image.frombytes("L", (WIDE, TALL), pictures(1, 5)[0]).save(jpeg, "JPEG")
    for damaged in (jpeg.getvalue()[:-20], jpeg.getvalue()[:30], b"\xff\xd8\xff" + bytes(100)):
        assert call("/v1/predict?model=digits", damaged, "image/jpeg")[0] == 400


def like(wanted, got, path="answer"):
    """Whether an answer has the fields of the documented one, of their types. null stands for anything, "..." for other
    fields, "*" for any name."""
    if isinstance(wanted, dict):
        assert isinstance(got, dict), (path, got)
        if "*" in wanted:
            wanted = dict.fromkeys(got, wanted["*"])
        names = set(wanted) - {"..."}
        assert names == set(got) if "..." not in wanted else names <= set(got), (path, sorted(set(wanted) ^ set(got)))
        for name in names:
            like(wanted[name], got[name], f"{path}.{name}")
    elif isinstance(wanted, list):
        assert isinstance(got, list) and (got or not wanted), (path, got)
        for item in got if wanted else []:
            like(wanted[0], item, path + "[]")
    elif wanted is not None:
        assert isinstance(got, float if isinstance(wanted, float) else type(wanted)), (path, got)
        if isinstance(wanted, str) and path.rsplit(".", 1)[-1] in ("object", "message", "type", "code", "role"):
            assert got == wanted, (path, got)


def check_reference():
    """The examples of docs/api.md: a block with a method and a path, and one with the status and the answer."""
    with open(sys.argv[3]) as f:
        blocks = re.findall(r"^```json ([^\n]*)\n(.*?)^```$", f.read(), re.M | re.S)
    assert len(blocks) > 20 and len(blocks) % 2 == 0, len(blocks)
    last = None
    for (ask, body), (status, answer) in zip(blocks[::2], blocks[1::2]):
        method, path = ask.split()
        got, value = call(path.replace("ID", str(last)), json.loads(body) if body else None, method=method)
        assert got == int(status), (ask, got, value)
        like(json.loads(answer), value, ask)
        last = value.get("id", last)


def check_responses(client):
    import openai

    ask = {"model": "talk", "input": "apple", "max_output_tokens": 9, "extra_body": {"seed": 3}}
    whole = client.responses.create(**ask)
    chat = client.chat.completions.create(
        model="talk", messages=[{"role": "user", "content": "apple"}], max_tokens=9, seed=3
    )
    assert (
        whole.output_text == chat.choices[0].message.content
        and whole.usage.output_tokens == 9
        and whole.usage.input_tokens == chat.usage.prompt_tokens
    )
    assert whole.status == "incomplete" and whole.incomplete_details.reason == "max_output_tokens"
    assert client.responses.retrieve(whole.id).to_dict() == whole.to_dict()
    client.responses.delete(whole.id)
    # Messages, instructions, probabilities, a schema.
    said = [
        {"role": "user", "content": [{"type": "input_text", "text": "apple"}]},
        {"role": "assistant", "content": "bay"},
        {"role": "user", "content": "moss"},
    ]
    listed = client.responses.create(
        **{**ask, "input": said},
        instructions="oak",
        store=False,
        include=["message.output_text.logprobs"],
        top_logprobs=2,
    )
    same = client.chat.completions.create(
        model="talk",
        messages=[{"role": "system", "content": "oak"}, {"role": "user", "content": "apple"}, *said[1:]],
        max_tokens=9,
        seed=3,
    )
    assert listed.output_text == same.choices[0].message.content and listed.instructions == "oak"
    logprobs = listed.output[0].content[0].logprobs
    assert "".join(p.token for p in logprobs) == listed.output_text and all(len(p.top_logprobs) == 2 for p in logprobs)
    schema = {
        "type": "object",
        "properties": {"a": {"enum": ["a", "e"]}},
        "required": ["a"],
        "additionalProperties": False,
    }
    formed = client.responses.create(
        model="talk",
        input="apple",
        text={"format": {"type": "json_schema", "name": "a", "strict": True, "schema": schema}},
    )
    assert (
        formed.status == "completed"
        and json.loads(formed.output_text)["a"] in "ae"
        and formed.text.format.type == "json_schema"
    )
    # A stream: numbered events, whose last one is the response that is kept.
    events = list(client.responses.create(**ask, stream=True))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    kinds = [e.type for e in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ], kinds
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ], kinds
    assert (
        "".join(e.delta for e in events if e.type == "response.output_text.delta")
        == whole.output_text
        == events[-1].response.output_text
        == events[-4].text
    )
    assert client.responses.retrieve(events[-1].response.id).output == events[-1].response.output
    # In the background, cancelled, deleted; what is not kept or another's is not found.
    later = client.responses.create(**ask, background=True)
    assert later.status in ("queued", "in_progress", "incomplete") and later.background
    while later.status in ("queued", "in_progress"):
        time.sleep(0.02)
        later = client.responses.retrieve(later.id)
    assert later.output_text == whole.output_text
    # One in the background that is streamed goes on without its client, who resumes behind any event.
    seen = []
    with client.responses.create(**{**ask, "max_output_tokens": 200}, background=True, stream=True) as stream:
        for event in stream:
            seen.append(event)
            if event.type == "response.queued":
                break
    id = seen[0].response.id
    seen += client.responses.retrieve(id, stream=True, starting_after=seen[-1].sequence_number)
    assert [e.sequence_number for e in seen] == list(range(len(seen))), seen
    begin, rest = [kinds[0], "response.queued", *kinds[1:4]], ["response.output_text.delta", *kinds[-4:]]
    assert [e.type for e in seen] == begin + rest, seen
    assert seen[-1].response.to_dict() == client.responses.retrieve(id).to_dict() and len(seen[5].delta) == 200
    for after in range(len(seen)):
        rest = list(client.responses.retrieve(id, stream=True, starting_after=after))
        assert [e.to_dict() for e in rest] == [e.to_dict() for e in seen[after + 1 :]], after
    followed = list(client.responses.create(**ask, background=True, stream=True))
    assert followed[-1].type == "response.incomplete" and followed[-1].response.output_text == whole.output_text
    live = events[-1].response.id
    for id, error, param in ((live, openai.BadRequestError, "stream"), ("resp_none", openai.NotFoundError, None)):
        try:
            client.responses.retrieve(id, stream=True)
            raise AssertionError(id)
        except error as refused:
            assert refused.param == param, refused
    many = [client.responses.create(**{**ask, "max_output_tokens": 200}, background=True) for _ in range(30)]
    assert client.responses.cancel(many[-1].id).status in ("cancelled", "incomplete", "completed")
    for kept in many:
        client.responses.delete(kept.id)
    for missing in (whole.id, listed.id, many[0].id, "resp_none"):
        try:
            client.responses.retrieve(missing)
            raise AssertionError(missing)
        except openai.NotFoundError as error:
            assert error.code == "response_not_found"
    for wrong in (
        {"previous_response_id": later.id},
        {"tools": [{"type": "file_search", "vector_store_ids": ["a"]}]},
        {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
        {"background": True, "store": False},
        {"model": "tiny"},
    ):
        try:
            client.responses.create(**{**ask, **wrong})
            raise AssertionError(wrong)
        except openai.BadRequestError:
            pass


def check_tools(client):
    """Calls of functions: of one that is named, of one of two, and none."""
    import openai

    where = {"type": "object", "properties": {"at": {"$ref": "#/$defs/tree"}}, "required": ["at"]}
    where = {**where, "additionalProperties": False, "$defs": {"tree": {"enum": ["oak", "elm"]}}}
    functions = [{"name": "bay", "strict": True, "parameters": where}, {"name": "hill", "strict": True}]
    ask = {
        "model": "talk",
        "messages": [{"role": "user", "content": "apple"}],
        "tools": [{"type": "function", "function": f} for f in functions],
        "seed": 3,
    }
    named = {"type": "function", "function": {"name": "bay"}}
    for choice in (named, "required"):
        whole = client.chat.completions.create(**ask, tool_choice=choice).choices[0]
        assert whole.finish_reason == "tool_calls" and whole.message.content is None, whole
        (called,) = whole.message.tool_calls
        arguments = json.loads(called.function.arguments)
        if called.function.name == "bay":
            assert arguments["at"] in ("oak", "elm") and len(arguments) == 1, called
        else:
            assert choice == "required" and called.function.name == "hill" and arguments == {}, called
        with client.chat.completions.stream(**ask, tool_choice=choice) as events:
            last = events.get_final_completion().choices[0]
        assert last.finish_reason == "tool_calls" and last.message.content is None
        (streamed,) = last.message.tool_calls
        assert (streamed.function.name, streamed.function.arguments) == (
            called.function.name,
            called.function.arguments,
        )
    text = client.chat.completions.create(**ask, max_tokens=5).choices[0]
    assert text.finish_reason == "length" and len(text.message.content) == 5 and not text.message.tool_calls
    try:
        client.chat.completions.create(**ask, tool_choice={"type": "function", "function": {"name": "nut"}})
        raise AssertionError("nut")
    except openai.BadRequestError as error:
        assert error.param == "tool_choice" and "'nut'" in error.message, error
    # A call in the background keeps how its text is read.
    status, task = call("/v1/tasks", {"endpoint": "/v1/chat/completions", "body": {**ask, "tool_choice": named}})
    assert status == 202, task
    while task["status"] not in ("completed", "failed"):
        time.sleep(0.02)
        task = call("/v1/tasks/" + task["id"])[1]
    (kept,) = task["result"]["choices"][0]["message"]["tool_calls"]
    assert kept["function"]["name"] == "bay" and json.loads(kept["function"]["arguments"])["at"] in ("oak", "elm")


def check_response_tools(client):
    """The same in responses: calls are items, and their outputs go back as items."""
    import openai

    where = {"type": "object", "properties": {"at": {"enum": ["oak", "elm"]}}, "required": ["at"]}
    where = {**where, "additionalProperties": False}
    tools = [
        {"type": "function", "name": "bay", "description": "where", "strict": True, "parameters": where},
        {"type": "function", "name": "hill", "strict": True, "parameters": None},
    ]
    ask = {"model": "talk", "input": "apple", "tools": tools, "extra_body": {"seed": 3}}
    named = {"type": "function", "name": "bay"}
    nested = [{"type": "function", "function": {k: v for k, v in tool.items() if k != "type"}} for tool in tools]
    said = [{"role": "user", "content": "apple"}]
    for choice in (named, "required", {"type": "allowed_tools", "mode": "required", "tools": [named]}):
        whole = client.responses.create(**ask, tool_choice=choice)
        assert whole.status == "completed" and whole.output_text == "", whole
        assert [t.to_dict() for t in whole.tools] == tools and whole.tool_choice is not None, whole
        (called,) = whole.output
        assert called.type == "function_call" and called.status == "completed", called
        arguments = json.loads(called.arguments)
        assert (called.name == "bay" and arguments["at"] in ("oak", "elm") and len(arguments) == 1) or (
            choice == "required" and called.name == "hill" and arguments == {}
        ), called
        assert client.responses.retrieve(whole.id).to_dict() == whole.to_dict()
        # The helper of the package puts events together, by their output_index.
        with client.responses.stream(**ask, tool_choice=choice) as stream:
            events = list(stream)
            last = stream.get_final_response()
        assert [e.sequence_number for e in events] == list(range(len(events)))
        (streamed,) = last.output
        assert (streamed.name, streamed.arguments) == (called.name, called.arguments), last
        pieces = [e for e in events if e.type == "response.function_call_arguments.delta"]
        assert pieces[-1].snapshot == called.arguments and {e.item_id for e in pieces} == {streamed.id}
        kinds = [e.type for e in events if e.type != "response.function_call_arguments.delta"]
        assert kinds == [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.function_call_arguments.done",
            "response.output_item.done",
            "response.completed",
        ], kinds
        assert (len(pieces) > 1) == (choice != "required"), pieces
        if choice == named:
            chat_choice = {"type": "function", "function": {"name": "bay"}}
            chat = client.chat.completions.create(
                model="talk", messages=said, tools=nested, tool_choice=chat_choice, seed=3
            )
            assert chat.choices[0].message.tool_calls[0].function.arguments == called.arguments, chat
    # What a client sends back: the items of a response as they are, and what the function has returned.
    back = [*said, *whole.output, {"type": "function_call_output", "call_id": called.call_id, "output": "moss"}]
    after = client.responses.create(**{**ask, "input": back}, max_output_tokens=5)
    assert after.status == "incomplete" and len(after.output_text) == 5, after
    # The template of this model has the contents alone.
    rendered = client.chat.completions.create(
        model="talk",
        messages=[*said, {"role": "assistant", "content": ""}, {"role": "user", "content": "moss"}],
        max_tokens=5,
        seed=3,
    )
    assert rendered.choices[0].message.content == after.output_text, (rendered, after)
    text = client.responses.create(**ask, max_output_tokens=5, parallel_tool_calls=False)
    assert [item.type for item in text.output] == ["message"] and not text.parallel_tool_calls, text
    events = list(client.responses.create(**ask, max_output_tokens=5, stream=True))
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == text.output_text
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert events[-1].response.output_text == text.output_text
    cut = client.responses.create(**ask, tool_choice=named, max_output_tokens=3)
    assert cut.status == cut.output[0].status == "incomplete" and len(cut.output[0].arguments) == 3, cut
    later = client.responses.create(**ask, tool_choice=named, background=True)
    while later.status in ("queued", "in_progress"):
        time.sleep(0.02)
        later = client.responses.retrieve(later.id)
    assert later.output[0].name == "bay" and json.loads(later.output[0].arguments)["at"] in ("oak", "elm"), later
    for param, sentence, wrong in (
        ("tools", "'web_search'", {"tools": [{"type": "web_search"}]}),
        ("tools", '"name"', {"tools": nested}),
        ("tool_choice", "'nut'", {"tool_choice": {"type": "function", "name": "nut"}}),
        ("input[2]", "'call_none'", {"input": [*back[:2], {**back[2], "call_id": "call_none"}]}),
        ("input[1]", "'image_call'", {"input": [back[0], {"type": "image_call", "id": "ic_1"}]}),
    ):
        try:
            client.responses.create(**{**ask, **wrong})
            raise AssertionError(wrong)
        except openai.BadRequestError as error:
            assert error.param == param and sentence in error.message, error


def check_openai():
    import openai

    client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
    assert {m.id for m in client.models.list()} >= {"tiny", "talk"} and client.models.retrieve("talk").created > 0
    ask = {"model": "tiny", "prompt": "apple", "max_tokens": 20, "seed": 3}
    whole = client.completions.create(**ask, logprobs=2)
    assert "".join(c.choices[0].text for c in client.completions.create(**ask, stream=True)) == whole.choices[0].text
    assert len(whole.choices[0].logprobs.top_logprobs[0]) == 2 and whole.usage.completion_tokens == 20
    said = [{"role": "user", "content": "apple"}]
    chat = client.chat.completions.create(
        model="talk", messages=said, max_tokens=9, seed=3, logprobs=True, top_logprobs=3
    )
    text = chat.choices[0].message.content
    assert chat.choices[0].finish_reason == "length" and len(chat.choices[0].logprobs.content[0].top_logprobs) == 3
    stream = client.chat.completions.create(
        model="talk", messages=said, max_tokens=9, seed=3, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert (
        "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == text
        and chunks[-1].usage.completion_tokens == 9
    )
    form = {
        "type": "json_schema",
        "json_schema": {
            "name": "a",
            "strict": True,
            "schema": {
                "type": "object",
                "properties": {"a": {"enum": ["a", "e"]}},
                "required": ["a"],
                "additionalProperties": False,
            },
        },
    }
    assert (
        json.loads(
            client.chat.completions.create(model="talk", messages=said, response_format=form).choices[0].message.content
        )["a"]
        in "ae"
    )
    # vLLM's extensions, as its users pass them.
    chosen = client.chat.completions.create(
        model="talk", messages=said, extra_body={"guided_choice": ["oak", "pine"], "min_tokens": 2, "top_k": -1}
    )
    assert chosen.choices[0].message.content in ("oak", "pine"), chosen
    floats = client.embeddings.create(model="tiny", input=["apple", "bay"], encoding_format="float").data
    packed = client.embeddings.create(model="tiny", input=["apple", "bay"]).data
    assert all(abs(a - b) < 1e-7 for x, y in zip(floats, packed) for a, b in zip(x.embedding, y.embedding))
    check_responses(client)
    check_tools(client)
    check_response_tools(client)
    for error, wrong in (
        (openai.NotFoundError, {"model": "none"}),
        (openai.BadRequestError, {"prompt": [99999]}),
        (openai.BadRequestError, {"extra_body": {"max_token": 1}}),
    ):
        try:
            client.completions.create(**{**ask, **wrong})
            raise AssertionError(wrong)
        except error:
            pass


globals()["check_" + sys.argv[1]]()
