-- A browser's request.
wrk.headers["Accept"]="text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7"
wrk.headers["Accept-Encoding"]="gzip, deflate, br, zstd"
wrk.headers["Accept-Language"]="en-US,en;q=0.9"
wrk.headers["Cache-Control"]="max-age=0"
wrk.headers["Cookie"]="sessionid=4f0d8a2c9b7e4d1f8a6c3b5e7d9f1a2b; csrftoken=Zk3hT8vQpLw2YxR5nMbC7sJdFgH1aKe4"
wrk.headers["Sec-Ch-Ua"]='"Chromium";v="140", "Not=A?Brand";v="24", "Google Chrome";v="140"'
wrk.headers["Sec-Ch-Ua-Mobile"]="?0"
wrk.headers["Sec-Ch-Ua-Platform"]='"Linux"'
wrk.headers["Sec-Fetch-Dest"]="document"
wrk.headers["Sec-Fetch-Mode"]="navigate"
wrk.headers["Sec-Fetch-Site"]="none"
wrk.headers["Sec-Fetch-User"]="?1"
wrk.headers["Upgrade-Insecure-Requests"]="1"
wrk.headers["User-Agent"]="Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"
