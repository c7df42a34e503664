-- wrk script: gets the documents with the ids in the file IDS, a line each, in random order.
local requests = {}

function init(args)
  for id in io.lines(os.getenv("IDS")) do
    requests[#requests + 1] = wrk.format("GET", "/documents/jobs/" .. id)
  end
  math.randomseed(1)
  for i = #requests, 2, -1 do
    local j = math.random(i)
    requests[i], requests[j] = requests[j], requests[i]
  end
end

local at = 0

function request()
  at = at % #requests + 1
  return requests[at]
end
