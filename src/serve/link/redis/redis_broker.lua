-- The broker inside Redis: the operations of gateways, workers and supervisors. redis_jobs.lua
-- documents the stored data.

-- Decides whether a new request is accepted: returns nil, or the refusal. It is refused for `why`
-- when `limit` or more sequences are ahead of it, at workers and in the queues of its level and
-- above. Counts it as arrived. If one part of a request was refused, so are later ones: it is
-- accepted as a whole or not at all. from: the gateway, '' for a task, which has no parts.
local function refusal(id, from, model, route, level, cost, seen, most, most_cost, limit, why)
    if seen ~= '1' and not (route and route.elastic) and call('ZSCORE', P .. 'models', model) == false then
        return {call('EXISTS', P .. 'models') == 1 and 'unknown' or 'starting'}
    end
    local key = P .. 'model:' .. model
    local waits = call('HMGET', key, 'n', 'cost', 'w1', 'w2', 'w3')
    local whole = from ~= '' and whole_of(id)
    local gone = whole and call('GET', P .. 'refused:' .. from) == whole
    local full = tonumber(waits[1] or 0) >= tonumber(most) or tonumber(waits[2] or 0) + cost > tonumber(most_cost)
    local ahead = at_workers(model, route)
    for i = 1, level do ahead = ahead + tonumber(waits[2 + i] or 0) end
    call('HINCRBY', key, 'arrived', 1)
    if full or gone or ahead >= tonumber(limit) then
        if whole then call('SET', P .. 'refused:' .. from, whole, 'PX', REFUSED) end
        call('HINCRBY', key, 'refused', 1)
        return {full and 'full' or why, ahead}
    end
    return nil
end

local function queues_of_all(model, versions)
    local all = queues(model, '')
    for _, version in ipairs(versions) do
        for level = 0, #LEVELS do all[#all + 1] = queue(model, level, version) end
    end
    return all
end

-- The first entry of a queue that was given to no worker yet; nil: there is none.
local function head_of(q)
    for _, group in ipairs(redis.pcall('XINFO', 'GROUPS', q)) do
        return call('XRANGE', q, '(' .. group[8], '+', 'COUNT', 1)[1]
    end
end

-- Called several times a second by every gateway and worker. A pause (of Redis, or of all of them)
-- or a clock that was set does not count as silence of workers: their time starts again. Returns
-- the time from which silence counts.
local function pulse(now)
    local was = call('HMGET', P .. 'pulse', 'last', 'since')
    local last, since = tonumber(was[1] or 0), tonumber(was[2] or now)
    if now - last > PAUSE or now < last then since = now end
    if now < last then
        -- Set back: entries delivered "in the future" would never be idle long enough.
        for _, model in ipairs(call('ZRANGE', P .. 'models', 0, -1)) do
            local names = call('ZRANGE', P .. 'named:' .. model, 0, -1)
            for _, q in ipairs(queues_of_all(model, names)) do
                local pending = redis.pcall('XPENDING', q, 'workers', '-', '+', 4096)
                for _, entry in ipairs(pending) do
                    call('XCLAIM', q, 'workers', entry[2], 0, entry[1], 'JUSTID')
                end
            end
            for _, name in ipairs(names) do call('ZADD', P .. 'named:' .. model, now, name) end
        end
        for _, worker in ipairs(call('ZRANGE', P .. 'alive', 0, -1)) do call('ZADD', P .. 'alive', now, worker) end
        for _, model in ipairs(call('ZRANGE', P .. 'models', 0, -1)) do call('ZADD', P .. 'models', now, model) end
    end
    call('HSET', P .. 'pulse', 'last', text(now), 'since', text(since))
    for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'deadlines', '-inf', text(now), 'LIMIT', 0, 64)) do
        local job = load(id)
        if job then
            call('HINCRBY', P .. 'counters', 'expired', 1)
            stop_work(id, job)
            fail(id, job, 504, 'deadline_exceeded', 'no worker was free before the deadline')
        else
            call('ZREM', P .. 'deadlines', id)
        end
    end
    return since
end

-- Releases what is pending for a worker that no longer has it: the next worker that looks takes it.
local function release(worker, model, version)
    local left = 0
    for _, q in ipairs(queues(model, version)) do
        local pending = redis.pcall('XPENDING', q, 'workers', '-', '+', 4096, worker)
        for _, entry in ipairs(pending) do
            call('XCLAIM', q, 'workers', worker, 0, entry[1], 'IDLE', 86400000, 'JUSTID')
            left = left + 1
        end
    end
    return left
end

local function forget_worker(worker)
    local record = call('HGET', P .. 'workers', worker)
    record = record and cjson.decode(record)
    local model, version = record and record.model, record and record.version or ''
    -- Deleting a consumer also deletes its pending entries.
    if model and release(worker, model, version) == 0 then
        for _, q in ipairs(queues(model, version)) do redis.pcall('XGROUP', 'DELCONSUMER', q, 'workers', worker) end
        call('HDEL', P .. 'workers', worker)
    end
    if model and call('HEXISTS', P .. 'workers', worker) == 1 then
        call('ZADD', P .. 'alive', 0, worker)
    else
        call('ZREM', P .. 'alive', worker)
    end
end

local ops = {}

---- all processes ----

-- Registers a process that has connected and subscribed to the channel of its protocol. Processes
-- of two protocols would misread each other's data, and tasks stored here: a second one is refused.
function ops.enter(database)
    for _, channel in ipairs(call('PUBSUB', 'CHANNELS', P .. 'protocol:' .. database .. ':*')) do
        local theirs = string.match(channel, '%d+$')
        if theirs ~= PROTOCOL then
            return redis.error_reply('PROTOCOL processes of another version of the program are connected to this ' ..
                'Redis: they speak protocol ' .. theirs .. ', this one ' .. PROTOCOL ..
                '; drain and end them all, then start all of them anew with one version')
        end
    end
    local stored = call('GET', P .. 'protocol')
    local waits = stored and stored ~= PROTOCOL and call('ZRANGEBYSCORE', P .. 'deadlines', text(clock()), '+inf') or {}
    local open = 0
    for _, id in ipairs(waits) do open = open + call('HEXISTS', P .. 'job:' .. id, 'o') end
    if open > 0 then
        return redis.error_reply('PROTOCOL ' .. open .. ' tasks are open in this Redis, of protocol ' .. stored ..
            '; this program speaks ' .. PROTOCOL .. ': let workers of their version end them, or use an empty database')
    end
    call('SET', P .. 'protocol', PROTOCOL)
    return {}
end

---- gateways ----

-- limit, why: see refusal; version: the only one that may answer, '' for any; whole: '1' when the
-- client receives nothing before the end.
function ops.submit(id, model, level, cost, sequences, left, gateway, seen, again, most, most_cost, limit, why, version,
                    whole, request)
    local job = load(id)
    local now = clock()
    local d = tonumber(left) > 0 and text(now + tonumber(left)) or '0'
    local key = P .. 'job:' .. id
    local route = route_of(model)
    if job and job.o then return {'ok'} end
    if job and job.s == 'queued' then
        call('HSET', key, 'g', gateway)
        return {'ok'}
    end
    local new = {m = model, p = level, c = cost, d = d, x = sequences, since = text(now),
                 bound = version ~= '' and '1' or '0'}
    new.queue = version ~= '' and version or pick(route, id)
    if job then
        -- A reconnected gateway submits its request again: it starts over as another attempt, on
        -- the version whose text the client has. Its former link, under another name, receives
        -- nothing of this one, and this one nothing of earlier attempts.
        stop_work(id, job)
        unlink(job)
        call('HINCRBY', key, 'a', 1)
        new.since = job.since
        if job.bound == '1' then new.queue, new.bound = job.version, '1' end
    else
        local no = again ~= '1' and
                   refusal(id, gateway, model, route, level, cost, seen, most, most_cost, limit, why)
        if no then return no end
        call('HSET', key, 'a', 0)
    end
    call('HSET', key, 'm', model, 'p', level, 'c', cost, 'd', d, 'g', gateway, 'l', 0,
         'since', new.since, 'bound', new.bound, 'whole', whole, 'r', request, 'x', sequences)
    enqueue(id, new)
    if not job then mirror(id, new, route, request) end
    return {'ok'}
end

function ops.cancel(id, gateway)
    local job = load(id)
    if job and not job.o and job.g == gateway then
        stop_work(id, job)
        forget(id, job)
    end
    return {}
end

local function row(id, owner)
    local key = P .. 'job:' .. id
    local v = call('HMGET', key, 'o', 's', 'b', 'd', 'a', 't', 'v', 'f', 'h', 'k')
    -- The owner is prefixed by a letter, because it may be empty.
    if not v[1] or v[1] ~= 'o' .. owner then return {'none'} end
    return {'task', id, v[2], v[3], v[4], v[5], v[6], v[7] or '', v[8] or '', v[9] or '', v[10] or ''}
end

-- Makes room for a new task or response, of which the owner may have `most`, with `most_bytes` in
-- all: deletes the oldest responses that have ended as far as needed, but none for one that cannot
-- be stored at all. Returns false if there is no room.
local function make_room(id, owner, most, most_bytes, bytes)
    local key, sizes = stored_of(id, owner), sizes_of(id, owner)
    most, most_bytes = tonumber(most), tonumber(most_bytes)
    for _, old in ipairs(call('ZRANGEBYSCORE', key, '-inf', text(clock()))) do drop_stored(old, owner) end
    local function lacks()
        return call('ZCARD', key) >= most or tonumber(call('HGET', sizes, 'all') or 0) + bytes > most_bytes
    end
    local from = 0
    while string.sub(id, 1, 4) == 'resp' and bytes <= most_bytes and lacks() do
        local oldest = call('ZRANGE', key, from, from + 63)
        if #oldest == 0 then break end
        for _, old in ipairs(oldest) do
            local state = call('HGET', P .. 'job:' .. old, 's')
            if state == 'queued' or state == 'in_progress' then
                from = from + 1
            elseif lacks() then
                call('DEL', P .. 'job:' .. old)
                drop_stored(old, owner)
            end
        end
    end
    return not lacks()
end

local function note_stored(id, owner, expires, bytes)
    local key = stored_of(id, owner)
    call('ZADD', key, expires, id)
    set_size(id, owner, bytes)
    -- The set goes with its last member.
    local last = call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
    call('PEXPIREAT', key, last)
    call('PEXPIREAT', sizes_of(id, owner), last)
end

function ops.task_add(id, owner, idempotency, model, level, cost, sequences, left, seen, most, most_cost, limit, why,
                      stored, stored_bytes, task, request, hook)
    local now = clock()
    local named = P .. 'key:' .. #owner .. ':' .. owner .. ':' .. idempotency
    local route = route_of(model)
    local earlier = idempotency ~= '' and call('GET', named)
    if earlier and call('EXISTS', P .. 'job:' .. earlier) == 1 then return row(earlier, owner) end
    local no = refusal(id, '', model, route, level, cost, seen, most, most_cost, limit, why)
    if no then return no end
    if not make_room(id, owner, stored, stored_bytes, #task + #request) then return {'stored'} end
    local d = text(now + tonumber(left))
    note_stored(id, owner, d, #task + #request)
    call('HSET', P .. 'job:' .. id, 'a', 0, 'm', model, 'p', level, 'c', cost, 'd', d, 'l', 0, 'o', 'o' .. owner,
         'b', text(now), 't', task, 'since', text(now), 'r', request, 'x', sequences)
    if hook == '1' then call('HSET', P .. 'job:' .. id, 'h', 'pending', 'k', 0) end
    if idempotency ~= '' then call('SET', named, id, 'PX', left) end
    enqueue(id, {m = model, p = level, c = cost, d = d, x = sequences, o = 'o' .. owner, since = text(now),
                 queue = pick(route, id)})
    return row(id, owner)
end

-- Stores a result that a gateway has computed.
function ops.task_keep(id, owner, left, stored, stored_bytes, task, result)
    local now = clock()
    local key = P .. 'job:' .. id
    local d = text(now + tonumber(left))
    if not make_room(id, owner, stored, stored_bytes, #task + #result) then return {'stored'} end
    note_stored(id, owner, d, #task + #result)
    call('HSET', key, 'a', 1, 's', 'completed', 'd', d, 'o', 'o' .. owner, 'b', text(now),
         't', task, 'v', result)
    call('PEXPIRE', key, left)
    return row(id, owner)
end

function ops.task_get(id, owner) return row(id, owner) end

function ops.task_cancel(id, owner)
    local job = load(id)
    if job and job.o == 'o' .. owner and (job.s == 'queued' or job.s == 'in_progress') then
        stop_work(id, job)
        settle(id, job, 'cancelled', '', '')
    end
    return row(id, owner)
end

function ops.task_delete(id, owner)
    local was = ops.task_cancel(id, owner)
    if was[1] == 'task' then
        call('DEL', P .. 'job:' .. id)
        call('ZREM', P .. 'hooks', id)
        drop_stored(id, owner)
    end
    return was
end

-- Cancels a task that has not ended, and deletes one that has.
function ops.task_drop(id, owner)
    local state = call('HGET', P .. 'job:' .. id, 's')
    local open = state == 'queued' or state == 'in_progress'
    return open and ops.task_cancel(id, owner) or ops.task_delete(id, owner)
end

-- Leases webhooks that are due; they are due again after the lease, because the gateway may die.
-- One that is due in a day or later dates from before Redis' clock was set back.
function ops.task_hooks(lease, most)
    local now = clock()
    local key, out = P .. 'hooks', {}
    local due = call('ZRANGEBYSCORE', key, '-inf', text(now), 'LIMIT', 0, most)
    if #due < tonumber(most) then
        local later = call('ZRANGEBYSCORE', key, text(now + HOOKED), '+inf', 'LIMIT', 0, tonumber(most) - #due)
        for _, id in ipairs(later) do due[#due + 1] = id end
    end
    for _, id in ipairs(due) do
        local v = call('HMGET', P .. 'job:' .. id, 's', 'b', 'd', 'a', 't', 'f', 'n')
        if v[1] then
            call('ZADD', key, text(now + tonumber(lease)), id)
            out[#out + 1] = {id, v[1], v[2], v[3], v[4], v[5], v[6] or '', v[7],
                             call('HINCRBY', P .. 'job:' .. id, 'k', 1)}
        else
            call('ZREM', key, id)
        end
    end
    return out
end

-- The outcome of an attempt; ignored for all but the last.
function ops.task_hook(id, try, state, delay)
    local key = P .. 'job:' .. id
    if call('HGET', key, 'k') ~= try or not call('ZSCORE', P .. 'hooks', id) then return {} end
    call('HSET', key, 'h', state)
    if state == 'pending' then
        call('ZADD', P .. 'hooks', text(clock() + tonumber(delay)), id)
    else
        call('ZREM', P .. 'hooks', id)
    end
    return {}
end

-- Passes what a client says of an answer to the gateway that gave it. Returns {1} if that is there.
function ops.feedback(tag, message) return {call('PUBLISH', P .. 'feedback:' .. tag, message)} end

-- The input of /health, /v1/models, metrics and autoscaling.
function ops.state(name, silence)
    local now = clock()
    local since = pulse(now)
    local workers, models = {}, {}
    local alive = call('ZRANGE', P .. 'alive', 0, -1, 'WITHSCORES')
    for i = 1, #alive, 2 do
        local age = math.max(0, now - tonumber(alive[i + 1]))
        local record = call('HGET', P .. 'workers', alive[i])
        if not record or (age > SILENT and now - since > SILENT) then
            forget_worker(alive[i])
        elseif math.min(age, now - since) < tonumber(silence) then
            workers[#workers + 1] = {record, math.min(age, now - since)}
        end
    end
    local named = call('ZRANGE', P .. 'models', 0, -1, 'WITHSCORES')
    for i = 1, #named, 2 do
        local model = named[i]
        local v = call('HMGET', P .. 'model:' .. model, 'info', 'n', 'cost', 'ended', 'arrived', 'refused', 'w1', 'w2')
        local route = route_of(model)
        local waits, oldest = tonumber(v[2] or 0), 0
        if waits == 0 and now - tonumber(named[i + 1]) > UNNAMED then
            call('ZREM', P .. 'models', model)
        end
        tend(model, now)
        local all = waits > 0 and queues_of_all(model, call('ZRANGE', P .. 'named:' .. model, 0, -1)) or {}
        for _, q in ipairs(all) do
            local head = head_of(q)
            if head then oldest = math.max(oldest, now - tonumber(string.match(head[1], '^%d+'))) end
        end
        models[#models + 1] = {model, v[1] or '', waits, tonumber(v[3] or 0), tonumber(v[4] or 0), oldest,
                               tonumber(v[5] or 0), route and route.elastic and 1 or 0, route and route.by or '',
                               versions_of(model, now, route), route and 1 or 0, tonumber(v[6] or 0),
                               at_workers(model, route), tonumber(v[7] or 0) + tonumber(v[8] or 0),
                               route and route.deployment and cjson.encode(route.deployment) or '',
                               route and call('PUBSUB', 'NUMSUB', P .. 'to:' .. route.by)[2] or 0,
                               route and route.restarts and cjson.encode(route.restarts) or ''}
    end
    local counters = {}
    for i, field in ipairs({'retried', 'expired', 'dead'}) do
        counters[i] = tonumber(call('HGET', P .. 'counters', field) or 0)
    end
    tell(name, '')
    return {workers, models, counters}
end

---- supervisors ----

-- Returns {1} if these are now the versions that get requests, {0} if another process decides.
-- info: of the model, or '', for when no worker of the version that serves has told.
function ops.route(model, by, route, info)
    local now = clock()
    local was = route_of(model)
    route = cjson.decode(route)
    if not may_route(was, by, route, model, now) then return {0} end
    route.by = by
    route.deployment = route.deployment or (was and was.deployment)
    route.restarts = route.restarts or (was and was.restarts)
    route['until'] = #route.versions > 1 and now + HOLD or 0
    call('SET', P .. 'route:' .. model, cjson.encode(route))
    local own = call('HGET', version_key(route.versions[1].version, model), 'info')
    if own then
        call('HSET', P .. 'model:' .. model, 'info', own)
    elseif info ~= '' then
        call('HSETNX', P .. 'model:' .. model, 'info', info)
    end
    call('ZADD', P .. 'models', 'NX', now, model)
    for _, v in ipairs(was and was.versions or {}) do
        local listed = lists(route, v.version)
        if not listed or listed.share == 0 then empty(model, v.version, route, false) end
    end
    call('PUBLISH', P .. 'wake:' .. model, '')
    return {1}
end

-- Notifies the process that decides, if it listens.
function ops.rollback(model)
    local route = route_of(model)
    return {route and tell(route.by, cjson.encode({t = 'rollback', model = model})) or 0}
end

---- workers ----

function ops.hello(worker, model, version, info)
    for _, q in ipairs(queues(model, version)) do redis.pcall('XGROUP', 'CREATE', q, 'workers', '0', 'MKSTREAM') end
    local route = route_of(model)
    call('HSET', version_key(version, model), 'info', info)
    -- A version under test says nothing of what the model answers.
    local serves = not route or route.versions[1].version == version
    call(serves and 'HSET' or 'HSETNX', P .. 'model:' .. model, 'info', info)
    -- A worker with a new link has no requests any more.
    release(worker, model, version)
    return {}
end

-- The arguments that follow are pairs of id and attempt of the worker's requests, which are claimed
-- again to show the consumer group that they are being processed. Returns the pairs that are not
-- the worker's any more.
function ops.beat(worker, model, version, record, ...)
    local now = clock()
    local has = {...}
    local gone, mine = {}, {}
    pulse(now)
    call('HSET', P .. 'workers', worker, record)
    call('ZADD', P .. 'alive', now, worker)
    call('ZADD', P .. 'models', now, model)
    call('ZADD', P .. 'named:' .. model, now, version)
    for i = 1, #has, 2 do
        local v = call('HMGET', P .. 'job:' .. has[i], 'a', 's', 'p', 'e', 'queue')
        if v[1] == has[i + 1] and v[2] == 'in_progress' then
            local q = queue(model, v[3], v[5] or '')
            mine[q] = mine[q] or {}
            table.insert(mine[q], v[4])
        else
            gone[#gone + 1], gone[#gone + 2] = has[i], has[i + 1]
        end
    end
    for q, entries in pairs(mine) do
        table.insert(entries, 'JUSTID')
        call('XCLAIM', q, 'workers', worker, 0, unpack(entries))
    end
    tell(worker, '')
    return gone
end

-- Gives a request to the worker that has its entry, or ends it.
local function give(out, now, worker, model, version, q, entry, claimed, most_lost)
    local id = entry[2][2]
    local key = P .. 'job:' .. id
    local job = load(id)
    if not job or job.e ~= entry[1] then
        call('XACK', q, 'workers', entry[1])
        call('XDEL', q, entry[1])
        return
    end
    if job.s == 'queued' then
        count_waiting(job, -1)
    else
        count_at_workers(job, -1)
    end
    job.s = 'taken'
    if claimed then
        local lost = call('HINCRBY', key, 'l', 1)
        if lost >= tonumber(most_lost) then
            local why = 'its worker was lost ' .. lost .. ' times'
            call('HINCRBY', P .. 'counters', 'dead', 1)
            call('XADD', P .. 'dead', 'MAXLEN', '~', 1024, '*', 'id', id, 'model', model, 'worker', job.w or '',
                 'reason', why, 'request', job.r)
            fail(id, job, 500, 'worker_lost', why)
            return
        end
        call('HINCRBY', P .. 'counters', 'retried', 1)
    end
    local d = tonumber(job.d)
    if d > 0 and d <= now then
        call('HINCRBY', P .. 'counters', 'expired', 1)
        fail(id, job, 504, 'deadline_exceeded', 'no worker was free before the deadline')
        return
    end
    if job.bound == '1' and job.queue == '' and job.version ~= version then
        -- The client has text of another version, whose workers have a separate queue.
        unlink(job)
        job.queue = job.version
        enqueue(id, job)
        return
    end
    local attempt = call('HINCRBY', key, 'a', 1)
    if not job.o and not job.of then
        -- A gateway that is gone has no subscriber on its channel.
        if call('PUBSUB', 'NUMSUB', P .. 'to:' .. job.g)[2] == 0 then
            forget(id, job)
            return
        end
        if attempt > 1 then tell(job.g, event(id, 'again')) end
        if d > 0 then call('ZADD', P .. 'deadlines', d + LATE, id) end
    end
    call('HSET', key, 's', 'in_progress', 'w', worker, 'version', version)
    job.version = version
    count_at_workers(job, 1)
    if job.o then
        call('HSET', P .. 'model:' .. model, 'given', 0)
    else
        call('HINCRBY', P .. 'model:' .. model, 'given', 1)
    end
    out[#out + 1] = {id, attempt, d > 0 and d - now or -1, job.x, job.o and 1 or 0, job.r}
end

-- Drops stale entries at the head of a queue, which might not be read for long and would count as
-- waiting.
local function drop_gone(q, worker)
    local head = head_of(q)
    while head and call('HGET', P .. 'job:' .. head[2][2], 'e') ~= head[1] do
        call('XREADGROUP', 'GROUP', 'workers', worker, 'COUNT', 1, 'STREAMS', q, '>')
        call('XACK', q, 'workers', head[1])
        call('XDEL', q, head[1])
        head = head_of(q)
    end
end

-- The turn of a task (task_turn.h): puts the one that has waited longest, among those that the
-- worker may take, into a queue of the first level. Returns that queue; nil: there is none.
local function promote(now, worker, model, version, leads)
    for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'tasks:' .. model, '-inf', text(now - TASK_WAIT), 'LIMIT', 0, 64)) do
        local job = load(id)
        if job and (job.queue == version or (leads and job.queue == '')) then
            local former = queue(model, job.p, job.queue)
            unlink(job)
            job.p = 0
            call('HSET', P .. 'job:' .. id, 'p', 0)
            enqueue(id, job)
            drop_gone(former, worker)
            return queue(model, 0, job.queue)
        elseif not job then
            call('ZREM', P .. 'tasks:' .. model, id)
        end
    end
end

-- Returns up to `most` requests; of the lowest level only while there are fewer than `low`, because
-- what waits at a worker is ahead of everything that comes later. With `silence`, first takes those
-- whose worker has been silent for that long.
function ops.take(worker, model, version, most, silence, most_lost, low)
    local now = clock()
    local out = {}
    most, silence, low = tonumber(most), tonumber(silence), tonumber(low)
    local since = silence > 0 and pulse(now) or now
    local claims = silence > 0 and now - since >= silence
    local route = route_of(model)
    local leads = not route or route.versions[1].version == version
    local late = call('ZCOUNT', P .. 'tasks:' .. model, '-inf', text(now - TASK_WAIT)) > 0
    -- Where to read next, and how much, so that a task that is late gets its turn.
    local function choose(q)
        local before = late and TASK_TURN - 1 - tonumber(call('HGET', P .. 'model:' .. model, 'given') or 0)
        if not late then return q, most - #out end
        if before > 0 then return q, math.min(before, most - #out) end
        local turn = promote(now, worker, model, version, leads)
        late = turn ~= nil
        return turn or q, turn and 1 or most - #out
    end
    -- One XAUTOCLAIM looks at ten entries for each that it may claim: those that others are at work on
    -- must not hide what is behind them.
    local function claim(q)
        local cursor = '0-0'
        while #out < most do
            local found = call('XAUTOCLAIM', q, 'workers', worker, silence, cursor, 'COUNT', most - #out)
            for _, entry in ipairs(found[2]) do
                give(out, now, worker, model, version, q, entry, true, most_lost)
            end
            cursor = found[1]
            if cursor == '0-0' then break end
        end
    end
    local function look(q)
        if claims then claim(q) end
        local rounds = 0
        while #out < most and rounds < 64 do
            local from, count = choose(q)
            local read = call('XREADGROUP', 'GROUP', 'workers', worker, 'COUNT', count, 'STREAMS', from, '>')
            if not read then break end
            for _, entry in ipairs(read[1][2]) do
                give(out, now, worker, model, version, from, entry, false, most_lost)
            end
            rounds = rounds + 1
        end
    end
    for level = 0, #LEVELS do
        if level == #LEVELS then most = math.min(most, low) end
        look(queue(model, level, version))
        if leads and version ~= '' then look(queue(model, level, '')) end
    end
    return out
end

-- The arguments are fives of id, attempt, "text", "more", "end" or "fail" (an error of the server),
-- a hash of the texts so far, and the event as in event_list.h. Returns the pairs of id and attempt
-- that are not the worker's any more.
function ops.events(...)
    local said = {...}
    local gone, batches, names = {}, {}, {}
    for i = 1, #said, 5 do
        local id, kind = said[i], said[i + 2]
        local v = call('HMGET', P .. 'job:' .. id, 'a', 's', 'g', 'told', 'whole')
        if v[1] ~= said[i + 1] or v[2] ~= 'in_progress' then
            gone[#gone + 1], gone[#gone + 2] = id, said[i + 1]
        else
            if not batches[v[3]] then
                batches[v[3]] = {events = {}, ids = {}}
                names[#names + 1] = v[3]
            end
            local batch = batches[v[3]]
            batch.events[#batch.events + 1] = said[i + 4]
            batch.ids[id] = said[i + 1]
            if kind == 'text' and not v[4] then
                count_first(load(id), clock())
                call('HSET', P .. 'job:' .. id, 'told', 1)
                if v[5] ~= '1' then call('HSET', P .. 'job:' .. id, 'bound', 1) end
            elseif kind == 'end' or kind == 'fail' then
                local job = load(id)
                count_end(id, job, kind, said[i + 3])
                forget(id, job)
            end
        end
    end
    for _, name in ipairs(names) do
        local batch = batches[name]
        if tell(name, '\1' .. table.concat(batch.events)) == 0 then
            for id, attempt in pairs(batch.ids) do
                local job = load(id)
                if job then
                    forget(id, job)
                    gone[#gone + 1], gone[#gone + 2] = id, attempt
                end
            end
        end
    end
    return gone
end

-- Stores the end of a task, once: that of the current attempt.
function ops.task_end(id, attempt, state, kind, result, failure)
    local job = load(id)
    if not job or job.a ~= attempt or job.s ~= 'in_progress' then return {id, attempt} end
    count_end(id, job, kind, '')
    settle(id, job, state, result, failure)
    return {}
end

function ops.bye(worker)
    forget_worker(worker)
    return {}
end

return ops[ARGV[1]](unpack(ARGV, 2))
