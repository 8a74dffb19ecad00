// Consul, built by `make services`: no package registry has its binary.
module deadletter/consul

go 1.18

require github.com/hashicorp/consul v1.12.9
