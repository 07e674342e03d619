-- The broker inside Redis: every change of a request's state is one call of this script, so it
-- happens as a whole or not at all. ARGV[1] names the operation; its arguments follow. Times are
-- milliseconds of Redis' own clock, and what is sent is a duration, so that the clocks of hosts
-- need not agree.
--
--   banyan:job:ID             hash of a request, see FIELDS
--   banyan:queue:MODEL:LEVEL  stream with consumer group "workers": the ids of requests. What is
--                             pending is at a worker; an entry whose request is gone, or has
--                             another entry, says nothing
--   banyan:model:MODEL        hash: info, n and cost (of what waits), ended (requests so far)
--   banyan:models             sorted set: models by the time at which a worker last named them
--   banyan:workers            hash: what each worker said last; banyan:alive: sorted set, and when
--   banyan:deadlines          sorted set: requests by the time at which they end unanswered
--   banyan:key:N:OWNER:KEY    string: the task that a key of idempotency stands for; N is the
--                             owner's length
--   banyan:hooks              sorted set: tasks that have ended by the time at which their webhook
--                             is due
--   banyan:dead               stream of requests that lost too many workers
--   banyan:pulse, banyan:counters
--   banyan:to:NAME            channel of a gateway or a worker; banyan:wake:MODEL: something waits
local P = 'banyan:'
local call = redis.call
local LEVELS = {'high', 'normal', 'low'}
-- state, model, level, entry of the stream, cost, deadline (0: none), gateway, attempt (counts up
-- with every delivery: what an earlier one says is no news), workers lost, worker, owner (of a task
-- alone), request. A task has more: b (when it came), t (what brought it), v, f (its result, or
-- failure), and one with a webhook h (its outcome), k (attempts), n (when the task ended)
local FIELDS = {'s', 'm', 'p', 'e', 'c', 'd', 'g', 'a', 'l', 'w', 'o', 'r'}
-- Milliseconds: without a call of any process, after which nobody counts as silent for a while;
-- that a worker has to end a request behind its deadline; until what is silent, or was long not
-- named, is forgotten; that a task with a webhook to be sent is kept behind its end.
local PAUSE, LATE, SILENT, UNNAMED, HOOKED = 1500, 60000, 60000, 3600000, 86400000

local function clock()
    local t = call('TIME')
    return t[1] * 1000 + math.floor(t[2] / 1000)
end
local function queue(model, level) return P .. 'queue:' .. model .. ':' .. LEVELS[tonumber(level)] end
local function tell(name, text) return call('PUBLISH', P .. 'to:' .. name, text) end
local function text(number) return string.format('%.0f', number) end

local function load(id)
    local values = call('HMGET', P .. 'job:' .. id, unpack(FIELDS))
    if not values[1] then return nil end
    local job = {}
    for i, name in ipairs(FIELDS) do job[name] = values[i] end
    return job
end

-- Takes a request out of its queue, or from its worker. What was never delivered stays in the
-- stream: to delete it there would make the group's lag unknown, by which autoscalers go.
local function unlink(job)
    if job.s == 'queued' then
        call('HINCRBY', P .. 'model:' .. job.m, 'n', -1)
        call('HINCRBY', P .. 'model:' .. job.m, 'cost', -job.c)
    elseif job.s == 'in_progress' then
        local q = queue(job.m, job.p)
        call('XACK', q, 'workers', job.e)
        call('XDEL', q, job.e)
    end
end

local function forget(id, job)
    unlink(job)
    call('DEL', P .. 'job:' .. id)
    call('ZREM', P .. 'deadlines', id)
end

-- A list of one event (event_list.h), behind the byte that says so.
local KINDS = {error = 'x', again = 'a'}
local function event(id, kind, more)
    local e = more or {}
    e.id, e.e = id, kind
    local json = cjson.encode(e)
    local head = struct.pack('<I4', 7 + #id + #json) .. KINDS[kind] .. struct.pack('<BI4', #id, 0)
    return '\1' .. head .. id .. '\0' .. json
end

-- The end of a task: its result stays until the task expires.
local function settle(id, job, state, result, failure)
    unlink(job)
    local key = P .. 'job:' .. id
    call('HSET', key, 's', state)
    if result ~= '' then call('HSET', key, 'v', result) end
    if failure ~= '' then call('HSET', key, 'f', failure) end
    call('HDEL', key, 'r', 'e', 'w')
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

-- Ends a request by an error, whoever waits for it.
local function fail(id, job, status, code, message)
    local failure = {status = status, code = code, message = message}
    if job.o then
        settle(id, job, 'failed', '', cjson.encode(failure))
    else
        tell(job.g, event(id, 'error', failure))
        forget(id, job)
    end
end

local function enqueue(id, job)
    job.e = call('XADD', queue(job.m, job.p), '*', 'id', id)
    call('HSET', P .. 'job:' .. id, 's', 'queued', 'e', job.e)
    call('HINCRBY', P .. 'model:' .. job.m, 'n', 1)
    call('HINCRBY', P .. 'model:' .. job.m, 'cost', job.c)
    if tonumber(job.d) > 0 then call('ZADD', P .. 'deadlines', job.d, id) end
    call('PUBLISH', P .. 'wake:' .. job.m, '')
end

-- Whether a new request finds room: nil, or what to answer.
local function refusal(model, cost, seen, most, most_cost)
    if seen ~= '1' and call('ZSCORE', P .. 'models', model) == false then
        return {call('EXISTS', P .. 'models') == 1 and 'unknown' or 'starting'}
    end
    local waits = call('HMGET', P .. 'model:' .. model, 'n', 'cost')
    if tonumber(waits[1] or 0) >= tonumber(most) or (tonumber(waits[2] or 0) + cost) > tonumber(most_cost) then
        call('HINCRBY', P .. 'counters', 'rejected', 1)
        return {'full', tonumber(waits[1] or 0)}
    end
    return nil
end

-- Every gateway and worker calls this several times a second. A pause (of Redis, or of all of them)
-- or a clock that was set is no silence of workers: from here on they have their whole time again.
-- Gives the time since which silence counts.
local function pulse(now)
    local was = call('HMGET', P .. 'pulse', 'last', 'since')
    local last, since = tonumber(was[1] or 0), tonumber(was[2] or now)
    if now - last > PAUSE or now < last then since = now end
    if now < last then
        -- Set back: what was delivered "in the future" would never be idle long enough.
        for _, model in ipairs(call('ZRANGE', P .. 'models', 0, -1)) do
            for level = 1, 3 do
                local pending = redis.pcall('XPENDING', queue(model, level), 'workers', '-', '+', 4096)
                for _, entry in ipairs(pending) do
                    call('XCLAIM', queue(model, level), 'workers', entry[2], 0, entry[1], 'JUSTID')
                end
            end
        end
        for _, worker in ipairs(call('ZRANGE', P .. 'alive', 0, -1)) do call('ZADD', P .. 'alive', now, worker) end
        for _, model in ipairs(call('ZRANGE', P .. 'models', 0, -1)) do call('ZADD', P .. 'models', now, model) end
    end
    call('HSET', P .. 'pulse', 'last', text(now), 'since', text(since))
    for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'deadlines', '-inf', text(now), 'LIMIT', 0, 64)) do
        local job = load(id)
        if job then
            call('HINCRBY', P .. 'counters', 'expired', 1)
            if job.s == 'in_progress' then tell(job.w, cjson.encode({t = 'cancel', id = id})) end
            fail(id, job, 504, 'deadline_exceeded', 'no worker was free before the deadline')
        else
            call('ZREM', P .. 'deadlines', id)
        end
    end
    return since
end

-- What is pending for a worker that does not have it: the next worker that looks takes it.
local function release(worker, model)
    local left = 0
    for level = 1, 3 do
        local q = queue(model, level)
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
    local model = record and cjson.decode(record).model
    -- A consumer that is deleted takes what is pending for it along.
    if model and release(worker, model) == 0 then
        for level = 1, 3 do redis.pcall('XGROUP', 'DELCONSUMER', queue(model, level), 'workers', worker) end
        call('HDEL', P .. 'workers', worker)
    end
    if model and call('HEXISTS', P .. 'workers', worker) == 1 then
        call('ZADD', P .. 'alive', 0, worker)
    else
        call('ZREM', P .. 'alive', worker)
    end
end

local ops = {}

---- of gateways ----

function ops.submit(id, model, level, cost, left, gateway, seen, again, most, most_cost, request)
    local job = load(id)
    local d = tonumber(left) > 0 and text(clock() + tonumber(left)) or '0'
    local key = P .. 'job:' .. id
    if job and job.o then return {'ok'} end
    if job and job.s == 'queued' then
        call('HSET', key, 'g', gateway)
        return {'ok'}
    end
    if job then
        -- A gateway that has come back asks again: from the beginning, at another attempt.
        tell(job.w, cjson.encode({t = 'cancel', id = id}))
        unlink(job)
        call('HINCRBY', key, 'a', 1)
    else
        local why = again ~= '1' and refusal(model, cost, seen, most, most_cost)
        if why then return why end
        call('HSET', key, 'a', 0)
    end
    call('HSET', key, 'm', model, 'p', level, 'c', cost, 'd', d, 'g', gateway, 'l', 0, 'r', request)
    enqueue(id, {m = model, p = level, c = cost, d = d})
    return {'ok'}
end

function ops.cancel(id, gateway)
    local job = load(id)
    if job and not job.o and job.g == gateway then
        if job.s == 'in_progress' then tell(job.w, cjson.encode({t = 'cancel', id = id})) end
        forget(id, job)
    end
    return {}
end

local function row(id, owner)
    local key = P .. 'job:' .. id
    local v = call('HMGET', key, 'o', 's', 'b', 'd', 'a', 't', 'v', 'f', 'h', 'k')
    -- An owner is stored behind a letter: it may be empty.
    if not v[1] or v[1] ~= 'o' .. owner then return {'none'} end
    return {'task', id, v[2], v[3], v[4], v[5], v[6], v[7] or '', v[8] or '', v[9] or '', v[10] or ''}
end

function ops.task_add(id, owner, idempotency, model, level, cost, left, seen, most, most_cost, task, request, hook)
    local now = clock()
    local named = P .. 'key:' .. #owner .. ':' .. owner .. ':' .. idempotency
    local earlier = idempotency ~= '' and call('GET', named)
    if earlier and call('EXISTS', P .. 'job:' .. earlier) == 1 then return row(earlier, owner) end
    local why = refusal(model, cost, seen, most, most_cost)
    if why then return why end
    local d = text(now + tonumber(left))
    call('HSET', P .. 'job:' .. id, 'a', 0, 'm', model, 'p', level, 'c', cost, 'd', d, 'l', 0, 'o', 'o' .. owner,
         'b', text(now), 't', task, 'r', request)
    if hook == '1' then call('HSET', P .. 'job:' .. id, 'h', 'pending', 'k', 0) end
    if idempotency ~= '' then call('SET', named, id, 'PX', left) end
    enqueue(id, {m = model, p = level, c = cost, d = d})
    return row(id, owner)
end

-- One that has ended: what a gateway has computed is kept.
function ops.task_keep(id, owner, left, task, result)
    local now = clock()
    local key = P .. 'job:' .. id
    call('HSET', key, 'a', 1, 's', 'completed', 'd', text(now + tonumber(left)), 'o', 'o' .. owner, 'b', text(now),
         't', task, 'v', result)
    call('PEXPIRE', key, left)
    return row(id, owner)
end

function ops.task_get(id, owner) return row(id, owner) end

function ops.task_cancel(id, owner)
    local job = load(id)
    if job and job.o == 'o' .. owner and (job.s == 'queued' or job.s == 'in_progress') then
        if job.s == 'in_progress' then tell(job.w, cjson.encode({t = 'cancel', id = id})) end
        settle(id, job, 'cancelled', '', '')
    end
    return row(id, owner)
end

function ops.task_delete(id, owner)
    local was = ops.task_cancel(id, owner)
    if was[1] == 'task' then
        call('DEL', P .. 'job:' .. id)
        call('ZREM', P .. 'hooks', id)
    end
    return was
end

-- Webhooks that are due, which then are again behind the lease: who takes them may die. One that is
-- due in a day or later is from before Redis' clock was put back.
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

-- What became of an attempt: of the last one alone.
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

-- What /health, /v1/models, metrics and autoscaling look at.
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
        local v = call('HMGET', P .. 'model:' .. model, 'info', 'n', 'cost', 'ended')
        local waits, oldest = tonumber(v[2] or 0), 0
        if waits == 0 and now - tonumber(named[i + 1]) > UNNAMED then
            call('ZREM', P .. 'models', model)
        end
        for level = 1, waits > 0 and 3 or 0 do
            local groups = redis.pcall('XINFO', 'GROUPS', queue(model, level))
            for _, g in ipairs(groups) do
                local next = call('XRANGE', queue(model, level), '(' .. g[8], '+', 'COUNT', 1)[1]
                if next then oldest = math.max(oldest, now - tonumber(string.match(next[1], '^%d+'))) end
            end
        end
        models[#models + 1] = {model, v[1] or '', waits, tonumber(v[3] or 0), tonumber(v[4] or 0), oldest}
    end
    local counters = call('HMGET', P .. 'counters', 'rejected', 'retried', 'expired')
    tell(name, '')
    return {workers, models, tonumber(counters[1] or 0), tonumber(counters[2] or 0), tonumber(counters[3] or 0)}
end

---- of workers ----

function ops.hello(worker, model, info)
    for level = 1, 3 do redis.pcall('XGROUP', 'CREATE', queue(model, level), 'workers', '0', 'MKSTREAM') end
    call('HSET', P .. 'model:' .. model, 'info', info)
    -- The worker of a link that was lost has nothing any more.
    release(worker, model)
    return {}
end

-- Pairs of id and attempt follow, of what it has, which is claimed again: that says to the group
-- that it is at work. Gives the pairs that are not the worker's any more.
function ops.beat(worker, model, record, ...)
    local now = clock()
    local has = {...}
    local gone, mine = {}, {{}, {}, {}}
    pulse(now)
    call('HSET', P .. 'workers', worker, record)
    call('ZADD', P .. 'alive', now, worker)
    call('ZADD', P .. 'models', now, model)
    for i = 1, #has, 2 do
        local v = call('HMGET', P .. 'job:' .. has[i], 'a', 's', 'p', 'e')
        if v[1] == has[i + 1] and v[2] == 'in_progress' then
            table.insert(mine[tonumber(v[3])], v[4])
        else
            gone[#gone + 1], gone[#gone + 2] = has[i], has[i + 1]
        end
    end
    for level = 1, 3 do
        if #mine[level] > 0 then
            table.insert(mine[level], 'JUSTID')
            call('XCLAIM', queue(model, level), 'workers', worker, 0, unpack(mine[level]))
        end
    end
    tell(worker, '')
    return gone
end

-- Gives a request to a worker that has its entry now, or ends it.
local function give(out, now, worker, model, level, entry, claimed, most_lost)
    local q = queue(model, level)
    local id = entry[2][2]
    local key = P .. 'job:' .. id
    local job = load(id)
    if not job or job.e ~= entry[1] then
        call('XACK', q, 'workers', entry[1])
        call('XDEL', q, entry[1])
        return
    end
    if job.s == 'queued' then
        call('HINCRBY', P .. 'model:' .. model, 'n', -1)
        call('HINCRBY', P .. 'model:' .. model, 'cost', -job.c)
        job.s = 'in_progress'
    end
    if claimed then
        local lost = call('HINCRBY', key, 'l', 1)
        if lost >= tonumber(most_lost) then
            local why = 'its worker was lost ' .. lost .. ' times'
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
    local attempt = call('HINCRBY', key, 'a', 1)
    if not job.o then
        -- Nobody listens on the channel of a gateway that is gone.
        if call('PUBSUB', 'NUMSUB', P .. 'to:' .. job.g)[2] == 0 then
            forget(id, job)
            return
        end
        if attempt > 1 then tell(job.g, event(id, 'again')) end
        if d > 0 then call('ZADD', P .. 'deadlines', d + LATE, id) end
    end
    call('HSET', key, 's', 'in_progress', 'w', worker)
    out[#out + 1] = {id, attempt, d > 0 and d - now or -1, job.o and 1 or 0, job.r}
end

-- Up to `most` requests: with `silence`, first those whose worker has said nothing for so long.
function ops.take(worker, model, most, silence, most_lost)
    local now = clock()
    local out = {}
    most, silence = tonumber(most), tonumber(silence)
    local since = silence > 0 and pulse(now) or now
    local claims = silence > 0 and now - since >= silence
    for level = 1, 3 do
        local q = queue(model, level)
        if claims and #out < most then
            for _, entry in ipairs(call('XAUTOCLAIM', q, 'workers', worker, silence, '0-0', 'COUNT', most - #out)[2]) do
                give(out, now, worker, model, level, entry, true, most_lost)
            end
        end
        local rounds = 0
        while #out < most and rounds < 64 do
            local read = call('XREADGROUP', 'GROUP', 'workers', worker, 'COUNT', most - #out, 'STREAMS', q, '>')
            if not read then break end
            for _, entry in ipairs(read[1][2]) do
                give(out, now, worker, model, level, entry, false, most_lost)
            end
            rounds = rounds + 1
        end
    end
    return out
end

-- Fours of id, attempt, "1" for the last one, and the event as event_list.h has it. Gives the pairs of id and
-- attempt that are not the worker's any more.
function ops.events(...)
    local said = {...}
    local gone, batches, names = {}, {}, {}
    for i = 1, #said, 4 do
        local id, last = said[i], said[i + 2] == '1'
        local v = call('HMGET', P .. 'job:' .. id, 'a', 's', 'g')
        if v[1] ~= said[i + 1] or v[2] ~= 'in_progress' then
            gone[#gone + 1], gone[#gone + 2] = id, said[i + 1]
        else
            if not batches[v[3]] then
                batches[v[3]] = {events = {}, ids = {}}
                names[#names + 1] = v[3]
            end
            local batch = batches[v[3]]
            batch.events[#batch.events + 1] = said[i + 3]
            batch.ids[id] = said[i + 1]
            if last then
                local job = load(id)
                forget(id, job)
                call('HINCRBY', P .. 'model:' .. job.m, 'ended', 1)
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

-- The end of a task, written once: by the attempt that counts.
function ops.task_end(id, attempt, state, result, failure)
    local job = load(id)
    if not job or job.a ~= attempt or job.s ~= 'in_progress' then return {id, attempt} end
    settle(id, job, state, result, failure)
    call('HINCRBY', P .. 'model:' .. job.m, 'ended', 1)
    return {}
end

function ops.bye(worker)
    forget_worker(worker)
    return {}
end

return ops[ARGV[1]](unpack(ARGV, 2))
