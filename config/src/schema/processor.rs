//! Keys of the processor `resource`.

use super::fields::{FieldVisitor, KeyGroup};
use super::scalar::{InvalidScalar, Scalar, ValueShape, as_text, words};
use crate::diagnostics::ConfigProblem;
use crate::model::*;
use crate::tree::{ConfigNode, ConfigValue};

impl KeyGroup for ResourceProcessor {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        let mut forms: Vec<ActionForm> =
            std::mem::take(&mut self.attributes).into_iter().map(ActionForm::from).collect();
        fields.groups("attributes", &mut forms);
        let given = forms.len();
        self.attributes = forms.into_iter().filter_map(ActionForm::finish).collect();
        if given == 0 {
            let allowed = "at least one action on an attribute".to_owned();
            fields.error("attributes", ConfigProblem::Missing { allowed });
        }
    }
}

/// The values of `action`; only the Collector supports the last two.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Action {
    Insert,
    Update,
    #[default]
    Upsert,
    Delete,
    Hash,
    Extract,
    Convert,
}

words! {
    Action: "insert" => Insert, "update" => Update, "upsert" => Upsert, "delete" => Delete, "hash" => Hash,
        "extract" => Extract, "convert" => Convert;
}

impl Scalar for AttributeValue {
    fn allowed() -> String {
        "text, a whole number, true or false".to_owned()
    }

    fn shape() -> ValueShape {
        ValueShape::Any
    }

    fn read(node: &ConfigNode) -> Result<Self, InvalidScalar> {
        match &node.value {
            ConfigValue::Bool(value) => Ok(Self::Bool(*value)),
            ConfigValue::Integer(value) => {
                i64::try_from(*value).map(Self::Integer).map_err(|_| InvalidScalar::default())
            }
            _ => as_text(node).map(|text| Self::Text(text.to_owned())).ok_or_else(InvalidScalar::default),
        }
    }

    fn write(&self) -> ConfigValue {
        match self {
            Self::Text(text) => ConfigValue::Text(text.clone()),
            Self::Integer(value) => ConfigValue::Integer((*value).into()),
            Self::Bool(value) => ConfigValue::Bool(*value),
        }
    }
}

/// An action before its keys are validated together.
#[derive(Default)]
struct ActionForm {
    key: String,
    action: Action,
    value: Option<AttributeValue>,
    from_attribute: Option<String>,
    default_value: Option<AttributeValue>,
}

impl From<AttributeAction> for ActionForm {
    fn from(from: AttributeAction) -> Self {
        let (action, source) = match from.change {
            AttributeChange::Insert(source) => (Action::Insert, source),
            AttributeChange::Update(source) => (Action::Update, source),
            AttributeChange::Upsert(source) => (Action::Upsert, source),
            AttributeChange::Delete => (Action::Delete, AttributeSource::default()),
            AttributeChange::Hash => (Action::Hash, AttributeSource::default()),
        };
        let (value, from_attribute) = match source.from {
            Some(AttributeOrigin::Value(value)) => (Some(value), None),
            Some(AttributeOrigin::Attribute(key)) => (None, Some(key)),
            None => (None, None),
        };
        Self { key: from.key, action, value, from_attribute, default_value: source.default_value }
    }
}

impl ActionForm {
    fn finish(self) -> Option<AttributeAction> {
        let value = self.value.map(AttributeOrigin::Value);
        let from = value.or(self.from_attribute.map(AttributeOrigin::Attribute));
        let source = AttributeSource { from, default_value: self.default_value };
        let change = match self.action {
            Action::Insert => AttributeChange::Insert(source),
            Action::Update => AttributeChange::Update(source),
            Action::Upsert => AttributeChange::Upsert(source),
            Action::Delete => AttributeChange::Delete,
            Action::Hash => AttributeChange::Hash,
            Action::Extract | Action::Convert => return None,
        };
        Some(AttributeAction { key: self.key, change })
    }
}

impl KeyGroup for ActionForm {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        fields.required("key", &mut self.key);
        if self.key.is_empty() && fields.is_given("key") {
            fields.error("key", ConfigProblem::Contradiction("must not be empty".to_owned()));
        }
        fields.required("action", &mut self.action);
        fields.optional("value", &mut self.value);
        fields.optional_or_empty("from_attribute", &mut self.from_attribute);
        fields.optional("default_value", &mut self.default_value);
        let has_source = self.value.is_some() || self.from_attribute.is_some();
        match self.action {
            Action::Insert | Action::Update | Action::Upsert => {
                if self.value.is_some() && self.from_attribute.is_some() {
                    fields.contradiction("takes at most one of value, from_attribute");
                } else if !has_source && self.default_value.is_none() && fields.is_given("action") {
                    fields.contradiction("needs one of value, from_attribute, default_value");
                }
            }
            Action::Delete | Action::Hash => {
                if has_source || self.default_value.is_some() {
                    fields.contradiction("delete and hash take no value");
                }
            }
            Action::Extract | Action::Convert => {
                let instead = "use the Collector's processor".to_owned();
                fields.error("action", ConfigProblem::NotInThisVersion { instead });
            }
        }
    }
}
