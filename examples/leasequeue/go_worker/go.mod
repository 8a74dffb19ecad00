module leasequeue/go_worker

go 1.22
