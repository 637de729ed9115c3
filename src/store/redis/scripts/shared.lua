-- What is not of a single counter: limits that are set at run time, and what others are told.
--
-- What is asked: `{what, ...}`. The limits of a policy are in one hash, their keys in the order of their texts beside it, and those
-- that end by their ends.
local asked = cmsgpack.unpack(ARGV[4])
local what, policy, key = asked[1], asked[2], asked[3]
local of_policy = prefix .. '{shared}:limits:' .. (what <= 3 and policy or '')
local keys, ends = of_policy .. ':keys', prefix .. '{shared}:limit-ends'

local function remove(of, at)
    call('HDEL', of, at)
    call('ZREM', of .. ':keys', at)
end

-- Sets a limit, or removes it, and tells whether there was one: `{0, policy, key, limit or nothing, end or nothing}`.
local function set()
    local before = limit_of(call('HGET', of_policy, key))
    local limit, ends_at = asked[4], asked[5]
    local member = policy .. '\n' .. key
    call('ZREM', ends, member)
    if limit then
        call('HSET', of_policy, key, limit)
        if key ~= '' then
            call('ZADD', keys, 0, key)
        end
        if ends_at then
            call('ZADD', ends, text(ends_at), member)
        end
    else
        remove(of_policy, key)
    end
    tell(1, policy, key, key)
    return is_in_force(before) and 1 or 0
end

-- The limit of a key: `{1, policy, key}`.
local function find()
    local stored = call('HGET', of_policy, key)
    return is_in_force(limit_of(stored)) and { key, stored } or {}
end

-- So many limits of the keys after one: `{2, policy, key, most}`. Those that have ended are none.
local function list()
    local found, after = {}, '(' .. key
    repeat
        local most = asked[4] - #found / 2
        local page = call('ZRANGEBYLEX', keys, key == '' and '-' or after, '+', 'LIMIT', 0, most)
        for _, at in ipairs(page) do
            local stored = call('HGET', of_policy, at)
            if stored and is_in_force(limit_of(stored)) then
                found[#found + 1], found[#found + 2] = at, stored
            end
            key, after = at, '(' .. at
        end
    until #page < most or #found / 2 >= asked[4]
    return found
end

-- Deletes so many limits that have ended, also by the server's clock unless a test has set the time: `{4, most, is_set}`.
local function sweep()
    if asked[3] == 0 then
        now = min(now, servers_now)
    end
    local ended = call('ZRANGEBYSCORE', ends, '-inf', text(now), 'LIMIT', 0, policy)
    for _, member in ipairs(ended) do
        local of, at = string.match(member, '^(.-)\n(.*)$')
        local name = prefix .. '{shared}:limits:' .. of
        local limit = limit_of(call('HGET', name, at))
        if limit and not is_in_force(limit) then
            remove(name, at)
        end
        call('ZREM', ends, member)
    end
    return #ended
end

-- What became free since a number: `{5, number or nothing, most}`. The answer: the server's time, the last number,
-- whether what follows is all, and that.
local function changes()
    local newest = call('LINDEX', CHANGES, 0)
    local last, after = newest and tonumber(string.match(newest, '^%d+')) or 0, policy
    if not after or after == last then
        return { now, last, 1 }
    elseif after > last or last - after > asked[3] then
        return { now, last, 0 }
    end
    local found = call('LRANGE', CHANGES, 0, last - after - 1)
    local oldest = #found == last - after and tonumber(string.match(found[#found], '^%d+'))
    if oldest ~= after + 1 then
        return { now, last, 0 }
    end
    table.insert(found, 1, 1)
    table.insert(found, 1, last)
    table.insert(found, 1, now)
    return found
end

-- Tells others, where that could not be done with the change itself: `{6, changes}`, each `{kind, policy, first, last}`.
local function tell_all()
    for _, change in ipairs(policy) do
        tell(change[1], change[2], change[3], change[4])
    end
    return 0
end

-- What is set for keys: `{7, limits}`, each `{policy, key}`. The answer: of each that of the key and that of all, or nothing.
local function of_keys()
    local found = {}
    for _, limit in ipairs(policy) do
        local both = call('HMGET', prefix .. '{shared}:limits:' .. limit[1], limit[2], '')
        found[#found + 1], found[#found + 2] = both[1] or '', both[2] or ''
    end
    return found
end

-- Which policies have limits: `{8, policies}`.
local function which()
    local found = {}
    for place, of in ipairs(policy) do
        found[place] = call('EXISTS', prefix .. '{shared}:limits:' .. of)
    end
    return found
end

local whats = { [0] = set, [1] = find, [2] = list, [4] = sweep, [5] = changes, [6] = tell_all, [7] = of_keys, [8] = which }
return whats[what]()
