-- Versions of a model in Redis: selection of a new request's version, and copies of requests for a
-- version under test. The route of a model, banyan:route:MODEL, is a JSON object: "versions", a
-- list of {version, share, shadow}, the first of which takes from the common queue; "by": who has
-- set it; "until": the time before which no other process may, 0 for none; "elastic": workers are
-- started on demand; "deployment" (messages.h), as last reported. Without a route workers of any
-- version take from the common queue.

-- Milliseconds: without a worker of a version until it counts as gone, if a route does not list it,
-- and without a route; for which a process that shifts shares excludes others; for which the
-- answers of a request and its copy wait for each other.
local UNLISTED, ABSENT, HOLD, MIRROR = 5000, 30000, 10000, 3600000
-- Most copies in flight: a version under test must not fill the queue.
local COPIES = 64

-- A number in [0, 1) that is the same for all parts of a request.
local function place_of(id)
    return tonumber(string.sub(redis.sha1hex(whole_of(id) or id), 1, 13), 16) / 2 ^ 52
end

-- Number of sequences at the workers that get new requests.
local function at_workers(model, route)
    local names, sum = {}, 0
    for _, v in ipairs(route and route.versions or {}) do
        if v.share > 0 then names[#names + 1] = v.version end
    end
    if not route then names = call('ZRANGE', P .. 'named:' .. model, 0, -1) end
    for _, name in ipairs(names) do sum = sum + tonumber(call('HGET', version_key(name, model), 'b') or 0) end
    return sum
end

-- The version whose queue a new request goes to: '' is the common queue.
local function pick(route, id)
    if not route then return '' end
    local total, last = 0, 1
    for _, v in ipairs(route.versions) do total = total + v.share end
    local at = place_of(id) * total
    for i, v in ipairs(route.versions) do
        if v.share > 0 then
            last = i
            if at < v.share then break end
            at = at - v.share
        end
    end
    return last == 1 and '' or route.versions[last].version
end

-- Moves what waits in the queues of a version elsewhere. gone: no worker of it is left, so the
-- requests of lost workers move too, and those that no other version may answer end.
local function empty(model, version, route, gone)
    local function move(q, entry)
        local id = entry[2][2]
        local job = load(id)
        local here = job and job.e == entry[1]
        if here and job.bound == '1' and gone then
            fail(id, job, 503, 'version_gone', 'the version of the model that began the answer is no longer served')
        elseif here and job.bound ~= '1' and (gone or job.s == 'queued') then
            unlink(job)
            job.queue = pick(route, id)
            enqueue(id, job)
        end
        if not here or gone or (job.bound ~= '1' and job.s == 'queued') then
            redis.pcall('XACK', q, 'workers', entry[1])
            call('XDEL', q, entry[1])
        end
    end
    for level = 0, #LEVELS do
        local q, from = queue(model, level, version), '-'
        repeat
            local entries = call('XRANGE', q, from, '+', 'COUNT', 256)
            for _, entry in ipairs(entries) do
                move(q, entry)
                from = '(' .. entry[1]
            end
        until #entries < 256
    end
end

-- Removes versions that are not listed and have no worker any more.
local function tend(model, now)
    local route = route_of(model)
    local last = text(now - (route and UNLISTED or ABSENT))
    for _, version in ipairs(call('ZRANGEBYSCORE', P .. 'named:' .. model, '-inf', last)) do
        if not lists(route, version) then
            empty(model, version, route, true)
            if now - call('ZSCORE', P .. 'named:' .. model, version) > UNNAMED then
                for level = 0, #LEVELS do call('DEL', queue(model, level, version)) end
                call('DEL', version_key(version, model))
                call('ZREM', P .. 'named:' .. model, version)
            end
        end
    end
end

-- Puts a copy of a new request into the queue of a version that asks for copies.
local function mirror(id, job, route, request)
    local to = nil
    for _, v in ipairs(route and route.versions or {}) do
        to = to or (v.shadow and v.version)
    end
    if not to or job.queue == to or job.bound == '1' then return end
    local key = version_key(to, job.m)
    if tonumber(call('HGET', key, 'copies') or 0) >= COPIES then return end
    local copy = 'shadow_' .. redis.sha1hex(id .. job.since)
    call('HINCRBY', key, 'copies', 1)
    call('HINCRBY', key, 'sent', 1)
    call('HSET', P .. 'mirror:' .. copy, 'version', to)
    call('PEXPIRE', P .. 'mirror:' .. copy, MIRROR)
    call('HSET', P .. 'job:' .. id, 'copy', copy)
    call('HSET', P .. 'job:' .. copy, 'm', job.m, 'p', job.p, 'c', job.c, 'd', job.d, 'g', '', 'a', 0, 'l', 0,
         'since', job.since, 'bound', 1, 'of', id, 'r', request, 'x', 0)
    enqueue(copy, {m = job.m, p = job.p, c = job.c, d = job.d, queue = to, of = id, x = 0})
end

-- Returns whether `by` may replace the route `was`: a process that shifts shares excludes others,
-- and a server that starts with other weights takes nothing from those that serve.
local function may_route(was, by, route, model, now)
    if not was or was.by == by then return true end
    if was['until'] > now then return false end
    local first = was.versions[1].version
    local named = call('ZSCORE', P .. 'named:' .. model, first)
    return #route.versions > 1 or route.versions[1].version == first or not named or now - named > 5000
end

local function histogram(values, what)
    local counts, count = {}, 0
    for bucket = 1, #EDGES + 1 do
        counts[bucket] = tonumber(values[what .. bucket] or 0)
        count = count + counts[bucket]
    end
    return {counts = counts, sum = tonumber(values[what .. 'sum'] or 0), count = count}
end

-- The state's entry for each version that is listed, or had workers recently.
local function versions_of(model, now, route)
    local names = call('ZRANGEBYSCORE', P .. 'named:' .. model, text(now - SILENT), '+inf')
    local seen, rows = {}, {}
    for _, v in ipairs(route and route.versions or {}) do names[#names + 1] = v.version end
    for _, name in ipairs(names) do
        if not seen[name] then
            local flat, values = call('HGETALL', version_key(name, model)), {}
            for i = 1, #flat, 2 do values[flat[i]] = flat[i + 1] end
            local function number(field) return tonumber(values[field] or 0) end
            local listed = lists(route, name)
            seen[name] = true
            rows[#rows + 1] = {
                version = name, share = listed and listed.share or 0, shadow = listed and listed.shadow or false,
                info = values.info and cjson.decode(values.info), requests = number('requests'),
                errors = number('errors'), first = histogram(values, 'first'),
                whole = histogram(values, 'whole'),
                mirrored = {sent = number('sent'), same = number('same'), different = number('different'),
                            failed = number('failed')}}
        end
    end
    return #rows > 0 and cjson.encode(rows) or '[]'
end
