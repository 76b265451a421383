# The addresses of the network.

provider "aws" {
  region                      = "eu-west-1"
  access_key                  = "fake"
  secret_key                  = "fake"
  skip_credentials_validation = true
  skip_requesting_account_id  = true
  skip_metadata_api_check     = true
}

override_data {
  target          = data.aws_availability_zones.available
  override_during = plan
  values          = { names = ["eu-west-1c", "eu-west-1a", "eu-west-1b"] }
}

variables {
  name = "cronbox-test"
}

run "two_zones" {
  command = plan

  assert {
    condition     = { for zone, subnet in aws_subnet.public : zone => subnet.cidr_block } == { eu-west-1a = "10.42.0.0/20", eu-west-1b = "10.42.16.0/20" }
    error_message = "The first two zones have public subnets."
  }

  assert {
    condition     = { for zone, subnet in aws_subnet.private : zone => subnet.cidr_block } == { eu-west-1a = "10.42.128.0/20", eu-west-1b = "10.42.144.0/20" }
    error_message = "And private ones."
  }

  assert {
    condition     = keys(aws_nat_gateway.this) == ["eu-west-1a"] && length(aws_route.nat) == 2
    error_message = "One gateway for both."
  }

  assert {
    condition     = length(output.nat_addresses) == 1
    error_message = "Its address, for a load balancer on the internet."
  }

  assert {
    condition     = length(aws_flow_log.this) == 0 && aws_vpc_endpoint.s3.vpc_endpoint_type == "Gateway"
    error_message = "No log unless it is wanted; S3 needs no gateway."
  }
}

run "a_gateway_in_each_of_three_zones" {
  command = plan

  variables {
    zones         = 3
    nat_gateways  = "each"
    flow_log_days = 7
  }

  assert {
    condition     = length(aws_nat_gateway.this) == 3 && length(aws_subnet.private) == 3 && aws_flow_log.this[0].traffic_type == "REJECT"
    error_message = "The loss of a zone takes no other one with it."
  }

  assert {
    condition     = length(output.nat_addresses) == 3
    error_message = "Each zone has an address of its own."
  }
}

run "refuses_one_zone" {
  command = plan

  variables {
    zones = 1
  }

  expect_failures = [var.zones]
}

run "refuses_a_small_block" {
  command = plan

  variables {
    cidr = "10.42.0.0/24"
  }

  expect_failures = [var.cidr]
}
