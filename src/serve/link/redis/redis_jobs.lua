-- Requests in Redis: where they wait, and how they end. This file, redis_versions.lua and
-- redis_broker.lua are concatenated to one script, in this order, after lines that define EDGES, the
-- upper edges of a histogram's buckets in seconds (metrics.h), PROTOCOL (redis_client.h), TASK_WAIT,
-- in milliseconds, and TASK_TURN (task_turn.h).
--
-- Every change of a request's state is one call of the script, so it is atomic. ARGV[1] names the
-- operation; its arguments follow. Times are milliseconds of Redis' own clock, and processes send
-- durations only, so that the clocks of hosts need not agree.
--
--   banyan:job:ID             hash of a request, see FIELDS
--   banyan:queue:MODEL:LEVEL  stream with consumer group "workers": the ids of requests. Pending
--                             entries are at a worker; an entry is stale if its request is gone or
--                             has another entry
--   banyan:queue:MODEL:LEVEL@VERSION  the same for requests that only workers of that version take
--   banyan:model:MODEL        hash: info (of the version that serves), n and cost (of what waits),
--                             w1, w2, w3 (sequences that wait at each level, for clients and
--                             tasks), and totals: arrived, refused (requests), ended (sequences
--                             that have ended at workers); given: requests that workers were given
--                             since the last task
--   banyan:tasks:MODEL        sorted set: waiting tasks by time of arrival
--   banyan:models             sorted set: models by the time at which a worker last named them
--   banyan:route:MODEL        string: the versions that get new requests (redis_versions.lua)
--   banyan:named:MODEL        sorted set: versions by the time at which a worker last named them
--   banyan:version:VERSION:MODEL  hash: statistics of a version, b: sequences at its workers, and
--                             info: as its workers report it
--   banyan:mirror:ID          hash: the answers so far of a request and of its copy with this id
--   banyan:workers            hash: the last beat of each worker; banyan:alive: sorted set of its
--                             times
--   banyan:deadlines          sorted set: requests by the time at which they end unanswered
--   banyan:key:N:OWNER:KEY    string: the task with an idempotency key; N is the owner's length
--   banyan:stored:KIND:OWNER  sorted set: an owner's tasks (KIND task) or responses (resp) by the time
--                             at which they expire
--   banyan:sizes:KIND:OWNER   hash: the bytes of each of them, and all: their sum
--   banyan:hooks              sorted set: tasks that have ended by the time at which their webhook
--                             is due
--   banyan:refused:GATEWAY    string: its last refused request, without the number of its part
--   banyan:dead               stream of requests that lost too many workers
--   banyan:pulse, banyan:counters
--   banyan:protocol           string: version of the stored data (redis_client.h)
--   banyan:protocol:DATABASE:NUMBER  channel (which databases share) to which all processes of that
--                             protocol subscribe; carries no messages
--   banyan:feedback:TAG       channel of a gateway: what clients have told others of its answers
--   banyan:to:NAME            channel of a gateway or a worker; banyan:wake:MODEL: requests wait
local P = 'banyan:'
local call = redis.call
-- Queue of the first level for a task whose turn it is. It is given to the worker that put it
-- there.
local LEVELS = {[0] = 'turn', 'high', 'normal', 'low'}
-- In order: state, model, level, entry of the stream, cost, deadline (0: none), gateway, attempt
-- (incremented by every delivery: events of an earlier one are stale), workers lost, worker, owner
-- (of tasks), request; the version whose queue it is in ('': the common queue), the version of the
-- worker that had it last, '1' when only that version may answer, '1' when part of the answer has
-- been sent, time of arrival, '1' when the client receives nothing before the end, its copy, the
-- request that it is a copy of, its sequences (0 for a copy: no client waits for them). A task also
-- has: b (time of arrival), t (the message that created it), v, f (its result, or failure), and with
-- a webhook h (its outcome), k (attempts), n (when the task ended).
local FIELDS = {'s', 'm', 'p', 'e', 'c', 'd', 'g', 'a', 'l', 'w', 'o', 'r', 'queue', 'version', 'bound', 'told',
                'since', 'whole', 'copy', 'of', 'x'}
-- Milliseconds: pause of all calls after which silence is counted anew; extra time of a worker to
-- end a request after its deadline; until a silent worker, or an unnamed model, is forgotten; that a
-- task with an undelivered webhook is kept after its end; in which later parts of a refused request
-- may arrive.
local PAUSE, LATE, SILENT, UNNAMED, HOOKED, REFUSED = 1500, 60000, 60000, 3600000, 86400000, 60000

local function clock()
    local t = call('TIME')
    return t[1] * 1000 + math.floor(t[2] / 1000)
end
local function queue(model, level, version)
    local all = P .. 'queue:' .. model .. ':' .. LEVELS[tonumber(level)]
    return version == '' and all or all .. '@' .. version
end
local function tell(name, text) return name == '' and 1 or call('PUBLISH', P .. 'to:' .. name, text) end
-- Tells the worker of a request to end it. The message names the attempt: it may arrive when the
-- worker has been given the request again.
local function stop_work(id, job)
    if job.s == 'in_progress' then
        tell(job.w, cjson.encode({t = 'cancel', id = id, attempt = tonumber(job.a)}))
    end
end
local function text(number) return string.format('%.0f', number) end
-- The common part of the ids of a request's parts ("ID-0", "ID-1"); nil: there is none.
local function whole_of(id) return string.match(id, '^(.+)%-') end

-- The streams of which a worker of a version may have entries.
local function queues(model, version)
    local all = {}
    for level = 0, #LEVELS do
        all[#all + 1] = queue(model, level, '')
        if version ~= '' then all[#all + 1] = queue(model, level, version) end
    end
    return all
end

local function load(id)
    local values = call('HMGET', P .. 'job:' .. id, unpack(FIELDS))
    if not values[1] then return nil end
    local job = {id = id}
    for i, name in ipairs(FIELDS) do job[name] = values[i] end
    job.queue = job.queue or ''
    job.since = job.since or clock()
    job.x = job.x or 0
    return job
end

---- statistics of a version ----

local function version_key(version, model) return P .. 'version:' .. version .. ':' .. model end

local function observe(key, what, seconds)
    local bucket = 1
    while bucket <= #EDGES and seconds > EDGES[bucket] do bucket = bucket + 1 end
    call('HINCRBY', key, what .. bucket, 1)
    call('HINCRBYFLOAT', key, what .. 'sum', seconds)
end

local function count_first(job, now)
    if job.version and not job.of then observe(version_key(job.version, job.m), 'first', (now - job.since) / 1000) end
end

-- For a copy: compares its answer with the client's, when both have ended.
local function compare(id, job, answer)
    local copy = job.of and id or job.copy
    local key = P .. 'mirror:' .. (copy or '')
    if not copy or call('EXISTS', key) == 0 then return end
    call('HSET', key, job.of and 'copy' or 'own', answer)
    local both = call('HMGET', key, 'own', 'copy', 'version')
    local counts = version_key(both[3], job.m)
    if job.of and answer == 'failed' then call('HINCRBY', counts, 'failed', 1) end
    if not both[1] or not both[2] then return end
    call('DEL', key)
    if both[1] ~= 'failed' and both[2] ~= 'failed' then
        call('HINCRBY', counts, both[1] == both[2] and 'same' or 'different', 1)
    end
end

-- Counts the last event: kind is "end", or "fail" for an error of the server; answer: a hash of the
-- texts.
local function count_end(id, job, kind, answer)
    local now = clock()
    compare(id, job, kind == 'fail' and 'failed' or 'h' .. answer)
    if not job.version or job.of then return end
    local key = version_key(job.version, job.m)
    if not job.told and kind == 'end' then count_first(job, now) end
    call('HINCRBY', key, 'requests', 1)
    if kind == 'fail' then call('HINCRBY', key, 'errors', 1) end
    observe(key, 'whole', (now - job.since) / 1000)
end

---- the route of a model (redis_versions.lua) ----

local function route_of(model)
    local route = call('GET', P .. 'route:' .. model)
    return route and cjson.decode(route)
end

-- The entry of a version in a route; nil: there is none.
local function lists(route, version)
    for _, v in ipairs(route and route.versions or {}) do
        if v.version == version then return v end
    end
    return nil
end

-- Without a route requests go to all versions.
local function has_share(route, version)
    local listed = lists(route, version)
    return not route or (listed ~= nil and listed.share > 0)
end

---- counts of waiting and running requests ----

-- Redis does not accept "-0".
local function add(key, field, sign, amount) return call('HINCRBY', key, field, sign * amount + 0) end

-- sign: 1 for a request that enters a queue, -1 for one that leaves it.
local function count_waiting(job, sign)
    local key = P .. 'model:' .. job.m
    call('HINCRBY', key, 'n', sign)
    add(key, 'cost', sign, job.c)
    add(key, 'w' .. job.p, sign, job.x)
    if job.o and sign > 0 then
        call('ZADD', P .. 'tasks:' .. job.m, job.since, job.id)
    elseif job.o then
        call('ZREM', P .. 'tasks:' .. job.m, job.id)
    end
end

-- The same for the workers of its version. The count of a version that was forgotten starts at 0.
local function count_at_workers(job, sign)
    if not job.version then return end
    local key = version_key(job.version, job.m)
    if add(key, 'b', sign, job.x) < 0 then call('HDEL', key, 'b') end
end

---- the states of a request ----

-- Takes a request out of its queue, or from its worker; 'taken': it is delivered, but no worker has
-- it yet. An entry that was never delivered stays in the stream: deleting it would make the lag of
-- the group unknown, which autoscalers use.
local function unlink(job)
    if job.s == 'queued' then count_waiting(job, -1) end
    if job.s == 'in_progress' then count_at_workers(job, -1) end
    if job.s == 'in_progress' or job.s == 'taken' then
        local q = queue(job.m, job.p, job.queue)
        call('XACK', q, 'workers', job.e)
        call('XDEL', q, job.e)
    end
end

-- Removes it for good: what a worker had counts as ended there. Workers of a version without a
-- share are not counted as busy either.
local function finish(job)
    unlink(job)
    if job.s == 'in_progress' and has_share(route_of(job.m), job.version) then
        call('HINCRBY', P .. 'model:' .. job.m, 'ended', job.x)
    end
end

local function forget(id, job)
    finish(job)
    call('DEL', P .. 'job:' .. id)
    call('ZREM', P .. 'deadlines', id)
    if job.of then call('HINCRBY', version_key(job.queue, job.m), 'copies', -1) end
end

-- A list of one event (event_list.h), preceded by the byte that marks a list.
local KINDS = {error = 'x', again = 'a'}
local function event(id, kind, more)
    local e = more or {}
    e.id, e.e = id, kind
    local json = cjson.encode(e)
    local head = struct.pack('<I4', 7 + #id + #json) .. KINDS[kind] .. struct.pack('<BI4', #id, 0)
    return '\1' .. head .. id .. '\0' .. json
end

---- what an owner has stored ----

-- The tasks or responses (by the beginning of the id) of an owner, by the time at which they expire.
local function stored_of(id, owner) return P .. 'stored:' .. string.sub(id, 1, 4) .. ':' .. owner end
local function sizes_of(id, owner) return P .. 'sizes:' .. string.sub(id, 1, 4) .. ':' .. owner end

-- The bytes of a task or response are those of its messages. One that an older program has stored
-- counts as nothing.
local function set_size(id, owner, bytes)
    local key = sizes_of(id, owner)
    local was = tonumber(call('HGET', key, id) or 0)
    call('HSET', key, id, bytes)
    add(key, 'all', 1, bytes - was)
end

local function drop_stored(id, owner)
    local key = sizes_of(id, owner)
    local was = call('HGET', key, id)
    call('ZREM', stored_of(id, owner), id)
    if was then
        call('HDEL', key, id)
        add(key, 'all', -1, was)
    end
end

-- Ends a task: its result is kept until the task expires.
local function settle(id, job, state, result, failure)
    finish(job)
    local key = P .. 'job:' .. id
    call('HSET', key, 's', state)
    if result ~= '' then call('HSET', key, 'v', result) end
    if failure ~= '' then call('HSET', key, 'f', failure) end
    call('HDEL', key, 'r', 'e', 'w')
    local owner = string.sub(job.o, 2)
    if call('HEXISTS', sizes_of(id, owner), id) == 1 then
        set_size(id, owner, call('HSTRLEN', key, 't') + #result + #failure)
    end
    call('ZREM', P .. 'deadlines', id)
    local kept = tonumber(job.d)
    if call('HEXISTS', key, 'h') == 1 then
        local now = clock()
        call('HSET', key, 'n', text(now))
        call('ZADD', P .. 'hooks', text(now), id)
        kept = math.max(kept, now + HOOKED)
    end
    call('PEXPIREAT', key, text(kept))
end

-- Ends a request with an error, for a gateway or a task.
local function fail(id, job, status, code, message)
    local failure = {status = status, code = code, message = message}
    count_end(id, job, 'fail', '')
    if job.o then
        settle(id, job, 'failed', '', cjson.encode(failure))
    else
        tell(job.g, event(id, 'error', failure))
        forget(id, job)
    end
end

-- Puts it into the queue job.queue.
local function enqueue(id, job)
    job.id = id
    job.e = call('XADD', queue(job.m, job.p, job.queue), '*', 'id', id)
    call('HSET', P .. 'job:' .. id, 's', 'queued', 'e', job.e, 'queue', job.queue)
    count_waiting(job, 1)
    if tonumber(job.d) > 0 then call('ZADD', P .. 'deadlines', job.d, id) end
    call('PUBLISH', P .. 'wake:' .. job.m, '')
end
