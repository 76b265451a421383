# The name of the app and its certificate, if the hosted zone is here.

resource "aws_route53_record" "app" {
  count = var.zone_id == null ? 0 : 1

  zone_id = var.zone_id
  name    = var.domain
  type    = "A"

  alias {
    name                   = aws_lb.this.dns_name
    zone_id                = aws_lb.this.zone_id
    evaluate_target_health = true
  }
}

resource "aws_acm_certificate" "this" {
  count = var.certificate_arn == null ? 1 : 0

  domain_name       = var.domain
  validation_method = "DNS"
  tags              = var.tags

  lifecycle {
    create_before_destroy = true
  }
}

# ACM renews the certificate as long as this record exists.
resource "aws_route53_record" "certificate" {
  count = var.certificate_arn == null ? 1 : 0

  zone_id = var.zone_id
  name    = one(aws_acm_certificate.this[0].domain_validation_options).resource_record_name
  type    = one(aws_acm_certificate.this[0].domain_validation_options).resource_record_type
  records = [one(aws_acm_certificate.this[0].domain_validation_options).resource_record_value]
  ttl     = 300
}

resource "aws_acm_certificate_validation" "this" {
  count = var.certificate_arn == null ? 1 : 0

  certificate_arn         = aws_acm_certificate.this[0].arn
  validation_record_fqdns = [aws_route53_record.certificate[0].fqdn]
}
