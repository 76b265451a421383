# The inputs of a network of its own, for an account that has none.

variable "name" {
  description = "The name of the VPC, and the beginning of all other names."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,36}$", var.name))
    error_message = "name must be 1 to 37 lower-case letters, digits or hyphens, and begin with a letter."
  }
}

variable "cidr" {
  description = "The addresses of the VPC: a block of 16 to 22 bits. Each zone gets a sixteenth of it for public and one for private subnets."
  type        = string
  default     = "10.42.0.0/16"

  validation {
    condition     = can(cidrhost(var.cidr, 0)) && can(regex("/(1[6-9]|2[0-2])$", var.cidr))
    error_message = "cidr must be an IPv4 block of 16 to 22 bits, for example 10.42.0.0/16."
  }
}

variable "zones" {
  description = "The number of availability zones."
  type        = number
  default     = 2

  validation {
    condition     = contains([2, 3], var.zones)
    error_message = "zones must be 2 or 3: the database and the load balancer need two."
  }
}

variable "nat_gateways" {
  description = "The way of private subnets to the internet: one gateway for all zones, or each zone its own, which survives the loss of a zone and costs as much again for each."
  type        = string
  default     = "one"

  validation {
    condition     = contains(["one", "each"], var.nat_gateways)
    error_message = "nat_gateways must be one or each."
  }
}

variable "flow_log_days" {
  description = "The number of days for which CloudWatch keeps the log of rejected connections; 0 = no log."
  type        = number
  default     = 0

  validation {
    condition     = contains([0, 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653], var.flow_log_days)
    error_message = "flow_log_days must be 0, or a number of days that CloudWatch Logs knows."
  }
}

variable "tags" {
  description = "Tags of every resource, in addition to the provider's default_tags."
  type        = map(string)
  default     = {}
}
