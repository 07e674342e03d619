"""What test_features.sh asks: features_client.py CHECK [URL [REDIS_PORT]]. `files` makes the table that is trained
on; `fill` writes rows into Redis as Feast does."""
import http.client
import http.server
import json
import random
import re
import socket
import struct
import sys
import threading
import time
import urllib.error
import urllib.request

url = sys.argv[2] if len(sys.argv) > 2 else ""
port = int(sys.argv[3]) if len(sys.argv) > 3 else 0
PASSWORD = "sec ret"
DAY = 86400


def call(path, body=None):
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def predict(entities, **more):
    return call("/v1/predict", {"model": "trips", "entities": entities, **more})


def metric(name):
    with urllib.request.urlopen(url + "/metrics") as page:
        found = re.findall("^" + re.escape(name) + r" (\S+)$", page.read().decode(), re.M)
    return float(found[0])


# ---- rows ----

def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def rows(count, seed):
    """Rates of a driver (a view of one join key) and what a customer does in a zone (of two); some are missing."""
    r = random.Random(seed)
    for i in range(count):
        row = {"rate": r.gauss(0, 3), "share": f32(r.random()), "trips": r.randrange(-2**60, 2**60),
               "active": r.randrange(2), "since": 1600000000000 + r.randrange(10**8) * 1000,
               "class": r.choice(["a", 'b "c"', "d, e", "\u00e9"])}
        row["price"] = round(row["rate"] + 5 * row["share"] + (row["class"] == "a"), 3)
        for name in ("rate", "trips", "class"):
            if r.random() < 0.1:
                row[name] = None
        yield row


def write_csv(path, table, columns):
    def cell(x):
        return "NA" if x is None else '"' + x.replace('"', '""') + '"' if isinstance(x, str) else repr(x)
    with open(path, "w") as f:
        f.write(",".join(columns) + "\n")
        for row in table:
            f.write(",".join(cell(row[c]) for c in columns) + "\n")


COLUMNS = ["rate", "share", "trips", "active", "since", "class"]


def check_files():
    write_csv("table.csv", rows(200, 1), COLUMNS + ["price"])
    write_csv("new.csv", rows(100, 2), COLUMNS)
    empty = [{**row, **{c: None for c in COLUMNS}} for row in rows(1, 3)]
    write_csv("empty.csv", empty, COLUMNS)


def entity(i):
    return {"driver_id": 1000 + i, "zone": f"z\u00f6ne {i % 7}"}


# ---- Redis as Feast fills it (feast/infra/online_stores/redis.py) ----

def murmur3(data):
    def rotate(x, n):
        return (x << n | x >> (32 - n)) & 0xFFFFFFFF
    h = 0
    for at in range(0, len(data), 4):
        block = data[at:at + 4]
        k = rotate(int.from_bytes(block, "little") * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF
        h = (rotate(h ^ k, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF if len(block) == 4 else h ^ k
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return (h ^ h >> 16).to_bytes(4, "little")


def redis_key(values, project="shop"):
    names = sorted(values)
    out = struct.pack("<I", len(names)) + b"".join(struct.pack("<II", 2, len(n)) + n.encode() for n in names)
    for name in names:
        v = values[name]
        data = struct.pack("<q", v) if isinstance(v, int) else v.encode()
        out += struct.pack("<II", 4 if isinstance(v, int) else 2, len(data)) + data
    return out + project.encode()


def varint(n):
    n &= 2**64 - 1
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def value(kind, x):
    """feast.types.Value."""
    if x is None:
        return b""
    if kind == "text":
        return b"\x12" + varint(len(x.encode())) + x.encode()
    tags = {"i64": 4, "bool": 7, "time": 8}
    if kind in tags:
        return bytes([tags[kind] << 3]) + varint(x)
    return b"\x29" + struct.pack("<d", x) if kind == "f64" else b"\x35" + struct.pack("<f", x)


KINDS = {"rate": "f64", "share": "f32", "trips": "i64", "active": "bool", "since": "time", "class": "text"}
VIEWS = {"driver_stats": (["driver_id"], ["rate", "share", "trips"]),
         "zone_use": (["driver_id", "zone"], ["active", "since", "class"])}


class Redis:
    def __init__(self):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.file = self.socket.makefile("rb")
        assert self.ask("AUTH", PASSWORD) == "+OK"

    def ask(self, *words):
        words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        self.socket.sendall(b"*%d\r\n" % len(words))
        self.socket.sendall(b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
        return self.file.readline().decode().strip()


def fields(view, row, at):
    out = [f"_ts:{view}", b"\x08" + varint(int(at))]
    for name in VIEWS[view][1]:
        x = row[name]
        x = x // 1000 if name == "since" and x is not None else x
        out += [murmur3(f"{view}:{name}".encode()), value(KINDS[name], x)]
    return out


def put(redis, i, row, at=None, views=VIEWS):
    for view in views:
        key = redis_key({k: entity(i)[k] for k in VIEWS[view][0]})
        assert redis.ask("HSET", key, *fields(view, row, at or time.time())).startswith(":")


def check_fill():
    redis = Redis()
    for i, row in enumerate(rows(100, 2)):
        put(redis, i, row)
    put(redis, 500, next(rows(1, 2)), time.time() - 2 * DAY, ["driver_stats"])
    put(redis, 500, next(rows(1, 2)), views=["zone_use"])
    # Damaged and of other types: a text where the model has a number, a list, what is no message.
    put(redis, 501, next(rows(1, 2)))
    key = redis_key({"driver_id": 1501})
    wrong = {"rate": value("text", "many"), "share": b"\x72\x04\x0a\x02\x01\x02", "trips": b"\x20"}
    for name, message in wrong.items():
        redis.ask("HSET", key, murmur3(f"driver_stats:{name}".encode()), message)
    redis.ask("SET", redis_key({"driver_id": 1502}), "text")


# ---- checks ----

def lines(path):
    with open(path) as f:
        return [{k: v for k, v in json.loads(line).items() if k != "index"} for line in f]


def same(answer, wanted):
    status, body = answer
    assert status == 200, body
    got = [{k: v for k, v in p.items() if k != "index"} for p in body["predictions"]]
    # Nine digits are those of a float: equal ones are equal bits.
    assert got == wanted, [(a, b) for a, b in zip(got, wanted) if a != b][:3]


def check_ready():
    end = time.time() + 300
    while call("/health/ready")[0] != 200 or predict([entity(0)])[0] != 200:
        assert time.time() < end, predict([entity(0)])
        time.sleep(0.05)


def check_served():
    check_ready()
    wanted = lines("new.lines")
    same(predict([entity(i) for i in range(100)]), wanted)
    for i in range(0, 100, 17):
        same(predict([entity(i)]), [wanted[i]])
    # Cells of the request itself come before those of the store.
    new = list(rows(100, 2))
    given = [{"rate": row["rate"], "class": row["class"]} for row in new]
    same(predict([{**entity(i), "driver_id": 1000 + i} for i in range(100)], rows=given), wanted)
    same(predict([entity(0)], rows=[{name: None for name in COLUMNS}]), lines("empty.lines"))


def check_outcomes():
    empty = lines("empty.lines")

    def count(outcome):
        return metric(f'banyan_feature_values_total{{outcome="{outcome}"}}')

    before = {o: count(o) for o in ("present", "not_found", "outside_max_age", "unusable")}
    same(predict([{"driver_id": 99, "zone": "nowhere"}]), empty)
    assert count("not_found") == before["not_found"] + 6
    same(predict([entity(500)]), lines("stale.lines"))
    assert count("outside_max_age") == before["outside_max_age"] + 3
    same(predict([entity(501)]), lines("stale.lines"))
    assert count("unusable") == before["unusable"] + 3
    there = sum(next(rows(1, 2))[name] is not None for name in VIEWS["zone_use"][1])
    assert count("present") == before["present"] + 2 * there
    assert metric("banyan_feature_fetch_seconds_count") > 0
    # A key of another type is a fault of the store, whose words are for the log alone.
    status, body = predict([entity(502)])
    assert status == 503 and "WRONGTYPE" not in json.dumps(body), body


def check_refused():
    good = entity(1)
    wrong = ([], {}, [3], [{}], [{"driver_id": 1}], [{**good, "driver_id": "1"}], [{**good, "driver_id": 1.5}],
             [{**good, "zone": 3}], [{**good, "driver": 1}],
             [{**good, "zone": "x" * 1025}], [{**good, "driver_id": 2**63}], [good] * 1025)
    for entities in wrong:
        status, body = predict(entities)
        assert status == 400, (entities[:1], status, body)
    assert "did you mean 'driver_id'" in predict([{**good, "driverid": 1}])[1]["error"]["message"]
    for more in ({"rows": []}, {"rows": [{}, {}]}, {"rows": [[1]]}, {"images": ["a"]}):
        assert predict([good], **more)[0] == 400, more
    assert call("/v1/predict", {"model": "other", "entities": [good]})[0] in (400, 404)
    status, body = call("/v1/tasks", {"endpoint": "/v1/predict", "body": {"model": "trips", "entities": [good]}})
    assert status == 400 and body["error"]["param"] == "entities", body
    # Bytes of a command of Redis stay a name.
    hostile = ["*1\r\n$8\r\nFLUSHALL\r\n", "\r\nFLUSHALL\r\n", "%s%n", "\u2028\U0001f600", "' OR 1=1 --"]
    status, body = predict([{"driver_id": i, "zone": z} for i, z in enumerate(hostile)])
    assert status == 200 and len(body["predictions"]) == 5, body
    check_served()


def gone_clients():
    host = url.split("//")[1]
    for _ in range(20):
        connection = http.client.HTTPConnection(host)
        connection.request("POST", "/v1/predict", json.dumps({"model": "trips", "entities": [entity(1)]}),
                           {"Content-Type": "application/json"})
        connection.close()


def check_silent():
    """Redis takes connections and answers nothing: an error in time, while the gateway does all else."""
    gone_clients()
    begun = metric('banyan_feature_fetches_total{result="timeout"}')
    end = time.time() + 300
    # Those of a connection that comes to count as lost meanwhile fail by that.
    while metric('banyan_feature_fetches_total{result="timeout"}') == begun:
        assert time.time() < end, "nothing has failed by the timeout"
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(predict([entity(1)]))) for _ in range(8)]
        for thread in threads:
            thread.start()
        assert call("/health/live")[0] == 200
        for thread in threads:
            thread.join()
        assert len(answers) == 8
        for status, body in answers:
            assert status == 503 and body["error"]["code"] == "features_unavailable", body


def check_down():
    status, body = predict([entity(1)])
    assert status == 503 and body["error"]["code"] == "features_unavailable", body


def check_fallback():
    """The store is down, and `missing` goes on without it; a required feature cannot."""
    end = time.time() + 300
    while call("/health/ready")[0] != 200 or predict([entity(1)])[0] == 503:
        assert time.time() < end, predict([entity(1)])
        time.sleep(0.05)
    same(predict([entity(1)]), lines("half.lines"))
    assert metric('banyan_feature_values_total{outcome="unavailable"}') >= 6


def check_required():
    check_ready()
    status, body = predict([entity(3), {"driver_id": 99, "zone": "nowhere"}])
    assert status == 422 and body["error"]["code"] == "feature_missing", body
    assert "driver_stats:share" in body["error"]["message"], body
    # The second time from the cache, which a change in the store does not reach at once.
    hits = metric('banyan_feature_cache_total{result="hit"}')
    first = predict([entity(5)])[1]["predictions"]
    put(Redis(), 5, next(rows(1, 77)))
    assert predict([entity(5)])[1]["predictions"] == first
    assert metric('banyan_feature_cache_total{result="hit"}') > hits


# ---- feast serve ----

class Feast(http.server.BaseHTTPRequestHandler):
    """POST /get-online-features as feast/feature_server.py answers it."""
    protocol_version = "HTTP/1.1"
    asked = []
    table = list(rows(100, 2))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Feast.asked.append((self.path, body))
        ids, results, names = body["entities"]["driver_id"], [], ["driver_id"]
        results.append({"values": ids, "statuses": ["PRESENT"] * len(ids),
                        "event_timestamps": ["1970-01-01T00:00:00Z"] * len(ids)})
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        old = time.strftime("%Y-%m-%dT%H:%M:%S.25Z", time.gmtime(time.time() - 2 * DAY))
        for name in body["features"]:
            view, feature = name.split(":")
            one = {"values": [], "statuses": [], "event_timestamps": []}
            for i in ids:
                row = self.table[i - 1000] if 1000 <= i < 1100 else self.table[0] if i == 1500 else None
                x = row and row[feature]
                if row and feature in ("active", "since"):
                    x = bool(x) if feature == "active" else x // 1000
                one["values"].append(x)
                one["statuses"].append("NOT_FOUND" if row is None else "NULL_VALUE" if x is None else "PRESENT")
                one["event_timestamps"].append(old if i == 1500 and view == "driver_stats" else now)
            names.append(f"{view}__{feature}" if body["full_feature_names"] else feature)
            results.append(one)
        if ids[0] == 1666:
            time.sleep(300)  # longer than anyone waits
        answer = {"metadata": {"feature_names": names}, "results": results} if ids[0] != 1667 else {}
        out = json.dumps(answer).encode()
        self.send_response(500 if ids[0] == 1668 else 200)
        self.send_header("Content-Length", str(len(out)))
        self.end_headers()
        self.wfile.write(out)

    def log_message(self, *_):
        pass


def start_feast():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Feast)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    return server


def check_http():
    server = start_feast()
    check_served()
    same(predict([{"driver_id": 99, "zone": "nowhere"}]), lines("empty.lines"))
    same(predict([entity(500)]), lines("stale.lines"))
    path, body = Feast.asked[0]
    assert path == "/get-online-features" and body["full_feature_names"] is True, body
    assert set(body["entities"]) == {"driver_id", "zone"}, body
    for i in (667, 668):
        status, answer = predict([entity(i)])
        assert status == 503 and answer["error"]["code"] == "features_unavailable", answer
    server.shutdown()


def check_http_silent():
    server = start_feast()
    check_ready()
    status, answer = predict([entity(666)])
    assert status == 503 and answer["error"]["code"] == "features_unavailable", answer
    server.shutdown()


globals()["check_" + sys.argv[1]]()
