output "vpc_id" {
  description = "The VPC."
  value       = aws_vpc.this.id
}

output "public_subnet_ids" {
  description = "One subnet of each zone, with addresses on the internet."
  value       = [for zone in local.zones : aws_subnet.public[zone].id]
}

output "private_subnet_ids" {
  description = "One subnet of each zone, which reaches the internet by NAT."
  value       = [for zone in local.zones : aws_subnet.private[zone].id]
}

output "nat_addresses" {
  description = "The public addresses of the NAT gateways, from which the private subnets reach the internet."
  value       = [for zone in sort(local.nats) : aws_eip.nat[zone].public_ip]
}

output "cidr" {
  description = "The addresses of the VPC."
  value       = aws_vpc.this.cidr_block
}
