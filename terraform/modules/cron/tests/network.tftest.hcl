# Which addresses the Lambdas reach.

provider "aws" {
  region                      = "eu-west-1"
  access_key                  = "fake"
  secret_key                  = "fake"
  skip_credentials_validation = true
  skip_requesting_account_id  = true
  skip_metadata_api_check     = true
}

override_data {
  target          = data.aws_caller_identity.current
  override_during = plan
  values          = { account_id = "123456789012" }
}

override_data {
  target          = data.aws_vpc.endpoints
  override_during = plan
  values          = { cidr_block_associations = [{ association_id = "1", cidr_block = "10.0.0.0/16", state = "associated" }, { association_id = "2", cidr_block = "10.1.0.0/16", state = "associated" }] }
}

override_data {
  target          = data.aws_subnet.endpoints[0]
  override_during = plan
  values          = { availability_zone = "eu-west-1a", id = "subnet-0000000000000000a" }
}

override_data {
  target          = data.aws_subnet.endpoints[1]
  override_during = plan
  values          = { availability_zone = "eu-west-1a", id = "subnet-0000000000000000b" }
}

override_data {
  target          = data.aws_subnet.endpoints[2]
  override_during = plan
  values          = { availability_zone = "eu-west-1b", id = "subnet-0000000000000000c" }
}

variables {
  env                        = "test"
  vpc_id                     = "vpc-0123456789abcdef0"
  subnet_ids                 = ["subnet-0000000000000000a", "subnet-0000000000000000b", "subnet-0000000000000000c"]
  database_security_group_id = "sg-0123456789abcdef0"
  database_secret_arn        = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:db-AbCdEf"
  scheduler_key_secret_arn   = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:key-AbCdEf"
  app_base_url               = "https://cron.example.com"
  alarm_topic_arns           = ["arn:aws:sns:eu-west-1:123456789012:oncall"]
  zips = {
    bucket           = "artefacts"
    publisher_sha256 = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    runner_sha256    = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
  }
}

run "without_endpoints_aws_is_reached_by_nat" {
  command = plan

  assert {
    condition = (
      [for rule in aws_vpc_security_group_egress_rule.publisher_to_aws : "${rule.cidr_ipv4} ${rule.to_port}"] == ["0.0.0.0/0 443"] &&
      [for rule in aws_vpc_security_group_egress_rule.runner_to_aws : "${rule.cidr_ipv4} ${rule.to_port}"] == ["0.0.0.0/0 443"] &&
      length(aws_vpc_security_group_egress_rule.publisher_to_endpoints) == 0 &&
      length(aws_vpc_security_group_egress_rule.runner_to_endpoints) == 0
    )
    error_message = "AWS's addresses change, so both may reach port 443 of every address."
  }

  # As with endpoints, in the_app_has_a_rule_of_its_own_with_endpoints.
  assert {
    condition = (
      [for rule in [aws_vpc_security_group_egress_rule.runner_to_app, one(aws_vpc_security_group_egress_rule.runner_to_app_upper)] : "${rule.cidr_ipv4} ${rule.to_port}"] == ["0.0.0.0/1 443", "128.0.0.0/1 443"] &&
      [for rule in [aws_vpc_security_group_egress_rule.publisher_to_app, one(aws_vpc_security_group_egress_rule.publisher_to_app_upper)] : "${rule.cidr_ipv4} ${rule.to_port}"] == ["0.0.0.0/1 443", "128.0.0.0/1 443"]
    )
    error_message = "Endpoints that are made later change no rule to the app, and no rule to it equals one to AWS."
  }
}

run "with_endpoints_aws_is_reached_only_by_them" {
  command = plan

  variables {
    create_vpc_endpoints        = true
    endpoint_security_group_ids = ["sg-0000000000000000e"]
    app_security_group_ids      = ["sg-0000000000000000a"]
  }

  assert {
    condition = (
      length(aws_vpc_security_group_egress_rule.publisher_to_aws) == 0 &&
      length(aws_vpc_security_group_egress_rule.runner_to_aws) == 0 &&
      keys(aws_vpc_security_group_egress_rule.publisher_to_endpoints) == ["created", "sg-0000000000000000e"] &&
      keys(aws_vpc_security_group_egress_rule.runner_to_endpoints) == ["created", "sg-0000000000000000e"] &&
      alltrue([for rule in aws_vpc_security_group_egress_rule.publisher_to_endpoints : rule.cidr_ipv4 == null && rule.to_port == 443]) &&
      alltrue([for rule in aws_vpc_security_group_egress_rule.runner_to_endpoints : rule.cidr_ipv4 == null && rule.to_port == 443])
    )
    error_message = "No rule permits all addresses."
  }

  assert {
    condition = (
      aws_vpc_security_group_egress_rule.runner_to_app.cidr_ipv4 == null &&
      aws_vpc_security_group_egress_rule.runner_to_app.referenced_security_group_id == "sg-0000000000000000a" &&
      aws_vpc_security_group_egress_rule.runner_to_app.to_port == 443 &&
      aws_vpc_security_group_egress_rule.publisher_to_app.cidr_ipv4 == null &&
      aws_vpc_security_group_egress_rule.publisher_to_app.referenced_security_group_id == "sg-0000000000000000a" &&
      length(aws_vpc_security_group_egress_rule.runner_to_app_upper) == 0 &&
      length(aws_vpc_security_group_egress_rule.publisher_to_app_upper) == 0
    )
    error_message = "The runner and the publisher reach only the app's group."
  }
}

run "endpoints_admit_the_whole_network" {
  command = plan

  variables {
    create_vpc_endpoints = true
  }

  assert {
    condition     = one(aws_security_group.endpoints[0].ingress).cidr_blocks == tolist(["10.0.0.0/16", "10.1.0.0/16"]) && one(aws_security_group.endpoints[0].ingress).to_port == 443
    error_message = "Private DNS sends every client of the VPC to the endpoints."
  }

  assert {
    condition = alltrue([
      for endpoint in aws_vpc_endpoint.this : endpoint.private_dns_enabled && endpoint.subnet_ids == toset(["subnet-0000000000000000a", "subnet-0000000000000000c"])
    ])
    error_message = "AWS refuses an endpoint with two subnets of one zone."
  }
}

run "the_app_admits_the_runner" {
  command = plan

  variables {
    app_base_url           = "https://cron.example.com:8443"
    app_security_group_ids = ["sg-0000000000000000a"]
  }

  assert {
    condition = [for rule in aws_vpc_security_group_ingress_rule.app_from_runner : "${rule.security_group_id} ${rule.from_port} ${rule.to_port}"] == [
      "sg-0000000000000000a 8443 8443",
    ]
    error_message = "The app's group admits the runner on its port."
  }

  assert {
    condition = [for rule in aws_vpc_security_group_ingress_rule.app_from_publisher : "${rule.security_group_id} ${rule.from_port} ${rule.to_port}"] == [
      "sg-0000000000000000a 8443 8443",
    ]
    error_message = "The app's group admits the publisher, which redrives dead letters."
  }
}

run "the_app_has_a_rule_of_its_own_with_endpoints" {
  command = plan

  variables {
    create_vpc_endpoints = true
  }

  assert {
    condition = (
      [for rule in [aws_vpc_security_group_egress_rule.runner_to_app, one(aws_vpc_security_group_egress_rule.runner_to_app_upper)] : "${rule.cidr_ipv4} ${rule.to_port}"] == ["0.0.0.0/1 443", "128.0.0.0/1 443"] &&
      [for rule in [aws_vpc_security_group_egress_rule.publisher_to_app, one(aws_vpc_security_group_egress_rule.publisher_to_app_upper)] : "${rule.cidr_ipv4} ${rule.to_port}"] == ["0.0.0.0/1 443", "128.0.0.0/1 443"]
    )
    error_message = "Without the app's group, its port stays open at every address, by the rules that exist without endpoints, too."
  }
}

run "another_port_of_the_app_needs_one_rule" {
  command = plan

  variables {
    app_base_url = "https://cron.example.com:8443"
  }

  assert {
    condition = (
      aws_vpc_security_group_egress_rule.runner_to_app.cidr_ipv4 == "0.0.0.0/0" && aws_vpc_security_group_egress_rule.runner_to_app.to_port == 8443 &&
      aws_vpc_security_group_egress_rule.publisher_to_app.cidr_ipv4 == "0.0.0.0/0" && aws_vpc_security_group_egress_rule.publisher_to_app.to_port == 8443 &&
      length(aws_vpc_security_group_egress_rule.runner_to_app_upper) == 0 && length(aws_vpc_security_group_egress_rule.publisher_to_app_upper) == 0
    )
    error_message = "No rule to AWS has its port."
  }
}

run "one_endpoint_is_not_enough" {
  command = plan

  variables {
    create_vpc_endpoints             = true
    interface_endpoint_service_names = ["scheduler", "secretsmanager"]
  }

  assert {
    condition     = length(aws_vpc_security_group_egress_rule.publisher_to_aws) == 1
    error_message = "The publisher reaches SQS by NAT."
  }
}
